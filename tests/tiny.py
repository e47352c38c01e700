"""Networks, batches and observations small enough to attack in a fraction of a second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from leakscope.client import share
from leakscope.defence import Defence, Hardened, StepContext
from leakscope.observation.observe import observe
from leakscope.rng import generator, uniform
from leakscope.types import Batch, LocalTraining, Observation, SharedUpdate


def dense(*, classes: int = 4, seed: int = 0, bias: bool = True, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """A sigmoid network on 1 × 6 × 6 images whose features are never negative."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [nn.Flatten(), nn.Linear(36, 24), nn.Sigmoid(), nn.Linear(24, classes, bias=bias)]
        return nn.Sequential(*layers).to(dtype)


def convolutional(*, classes: int = 4, seed: int = 0, norm: bool = False) -> nn.Sequential:
    """A convolution, optionally batch normalisation, and a linear layer on 1 × 6 × 6 images."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        middle = [nn.BatchNorm2d(3)] if norm else []
        layers = [nn.Conv2d(1, 3, 3, padding=1), *middle, nn.Sigmoid(), nn.Flatten(), nn.Linear(108, classes)]
        return nn.Sequential(*layers).double()


def batch_of(
    labels: list[int], *, seed: int = 0, shape: tuple[int, ...] = (1, 6, 6), dtype: torch.dtype = torch.float64
) -> Batch:
    """Uniform noise images with the given labels."""
    inputs = uniform((len(labels), *shape), generator(seed, "batch"), like=torch.empty(0, dtype=dtype))
    return Batch(inputs, torch.tensor(labels))


def shared(model: nn.Module | Hardened, batch: Batch, *, seed: int = 1, **options: Any) -> SharedUpdate:
    """What a client sends in the open."""
    update = share(model, batch, seed=seed, **options)
    assert isinstance(update, SharedUpdate)
    return update


def seen_of(model: nn.Module, batch: Batch, *, scenario: str = "A", local: LocalTraining | None = None) -> Observation:
    """What the server sees of an undefended client."""
    return observe(model, shared(model, batch, local=local), scenario=scenario, truth=batch)


def flat(tensors: Mapping[str, Tensor]) -> Tensor:
    """All tensors as one vector."""
    return torch.cat([value.reshape(-1) for value in tensors.values()])


def step_of(defence: Defence, gradients: Mapping[str, Tensor], *, seed: int = 0, step: int = 0) -> dict[str, Tensor]:
    """What the hooks of a local step make of gradients of examples, name → [n, …]."""
    hooks = defence.hooks()
    count = len(next(iter(gradients.values())))
    batch = Batch(torch.zeros(count, 1), torch.zeros(count, dtype=torch.long))
    context = StepContext(nn.Identity(), {}, batch, lambda output, targets: output, step, generator(seed))
    each = dict(gradients) if hooks.example_gradients is None else hooks.example_gradients(dict(gradients), context)
    mean = {name: value.mean(0) for name, value in each.items()}
    return mean if hooks.gradient is None else hooks.gradient(mean, context)
