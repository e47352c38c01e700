"""The network of the search: trained for a short while on a tenth of the data, once for all policies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from leakscope.defences.transforms.score_pool import fixed_threads
from leakscope.errors import UsageError
from leakscope.networks import check_output, copy_network
from leakscope.rng import child_seed, generator
from leakscope.types import Batch

MOST_EPOCHS = 100_000
SHARE = 0.1
_BATCH = 128
# Networks from this size on are trained by two threads, smaller ones by one. It depends on nothing else, neither the
# machine nor --workers: threads share out sums, and another number of them gives another network.
_LARGE_NETWORK = 1_000_000
# Shares of the training after which the rate falls to a tenth: 22, 37 and 52 of 60 epochs.
_DROPS = (2.667, 1.6, 1.142)


@dataclass(frozen=True)
class TinyTraining:
    """Plain SGD with momentum, as published, for fewer epochs.

    Attributes:
        epochs: passes over the examples; 0 leaves the network untrained.
        lr: learning rate, with Nesterov momentum 0.9 and weight decay 5e-4.
        seed: of the order of the examples.
    """

    epochs: int = 2
    lr: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.epochs, bool) or not 0 <= self.epochs <= MOST_EPOCHS:
            raise UsageError(f"epochs must be a whole number from 0 to {MOST_EPOCHS:,}, got {self.epochs!r}")


def train_tiny(
    model: nn.Module, batch: Batch, training: TinyTraining, *, watch: Callable[[int, int, float], None] | None = None
) -> nn.Module:
    """A trained copy of `model`, in evaluation mode; `watch` gets steps done, steps in all and the loss."""
    found = copy_network(model)
    if not training.epochs:
        return found.eval()
    found.train()
    optimiser = torch.optim.SGD(
        found.parameters(), lr=training.lr, momentum=0.9, nesterov=True, weight_decay=5e-4, foreach=False
    )
    drops = [int(training.epochs // share) for share in _DROPS]
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, drops, gamma=0.1)
    total, done = training.epochs * -(-len(batch.inputs) // _BATCH), 0
    order = generator(training.seed, "search", "order")
    with torch.random.fork_rng(devices=[]), fixed_threads(_count_threads(found)):
        # Dropout draws from torch's own generator.
        torch.manual_seed(child_seed(training.seed, "search", "training"))
        for _ in range(training.epochs):
            for rows in torch.randperm(len(batch.inputs), generator=order).split(_BATCH):
                loss = _step(found, optimiser, Batch(batch.inputs[rows], batch.targets[rows]))
                done += 1
                if watch is not None:
                    watch(done, total, loss)
            schedule.step()
    return found.eval()


def _count_threads(model: nn.Module) -> int:
    return 2 if sum(value.numel() for value in model.parameters()) >= _LARGE_NETWORK else 1


def _step(model: nn.Module, optimiser: torch.optim.Optimizer, batch: Batch) -> float:
    # Batch normalisation cannot learn from a single value per channel.
    if len(batch.inputs) < 2:
        return float("nan")
    optimiser.zero_grad()
    loss = functional.cross_entropy(check_output(model(batch.inputs)), batch.targets)
    loss.backward()
    optimiser.step()
    return float(loss.detach())
