"""Two clients in the plane whose data differ: small enough to draw what a model decides."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from leakscope.counts import MOST_EXAMPLES, check_count
from leakscope.errors import UsageError
from leakscope.rng import generator, normal
from leakscope.types import Batch

# Centres of class 0 and class 1, and the standard deviation, of either client. What lies above the one's boundary lies
# below the other's: a boundary that serves both rises from left to right.
_CLIENTS = (
    (((-1.5, -1.0), (-1.5, 1.0)), 0.8),
    (((1.5, 0.7), (1.5, 2.3)), 0.5),
)
# A tenth of what a client has is for testing.
_TESTED = 10


@dataclass(frozen=True)
class PlaneTask:
    """Training examples of each client, and the test examples of all together."""

    train: tuple[Batch, ...]
    test: Batch


def two_gaussians(samples: int = 40_000, *, seed: int = 0) -> PlaneTask:
    """Two classes for each of two clients, Gaussian round other centres and with another spread.

    Each client has `samples` points, half of each class, of which nine tenths are for training. The thesis says so much
    and no more: centres and spreads are ours.

    References:
        Section 4.3.1 of Ren's thesis; Ren et al., arXiv:2007.07296.

    Example:
        >>> task = two_gaussians(100)
        >>> [len(batch) for batch in task.train], len(task.test)
        ([90, 90], 20)
    """
    check_count(samples, "samples", most=MOST_EXAMPLES)
    if samples < _TESTED:
        raise UsageError(f"two_gaussians needs at least {_TESTED} samples, one of them to test with, got {samples}")
    drawn = [_draw(samples, client, seed) for client in range(len(_CLIENTS))]
    kept = samples - samples // _TESTED
    train = tuple(Batch(inputs[:kept], targets[:kept], bounds=None) for inputs, targets in drawn)
    inputs = torch.cat([inputs[kept:] for inputs, _ in drawn])
    targets = torch.cat([targets[kept:] for _, targets in drawn])
    return PlaneTask(train, Batch(inputs, targets, bounds=None))


def _draw(samples: int, client: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    centres, spread = _CLIENTS[client]
    rng = generator(seed, "two gaussians", client)
    targets = torch.arange(samples)[torch.randperm(samples, generator=rng)] % 2
    return torch.tensor(centres)[targets] + spread * normal((samples, 2), rng), targets
