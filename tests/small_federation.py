"""Clients and networks that a federation trains in milliseconds."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leakscope.federated import Client, Experiment, Poison, Reply
from leakscope.rng import generator, normal
from leakscope.types import Batch, LocalTraining, SharedUpdate

LOCAL = LocalTraining(lr=0.2, epochs=2, batch_size=10, momentum=0.5, shuffle=True)


def blobs(count: int = 60, *, seed: int = 0, classes: int = 3) -> Batch:
    """Gaussian blobs in the plane, one per class, all classes equally often."""
    labels = torch.arange(count) % classes
    angles = labels * (2 * torch.pi / classes)
    centres = 2 * torch.stack([angles.cos(), angles.sin()], 1)
    return Batch(centres + 0.5 * normal((count, 2), generator(seed, "blobs")), labels, bounds=None)


def network(*, seed: int = 0, norm: bool = False, dropout: float = 0.0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        middle = [nn.BatchNorm1d(6)] if norm else []
        return nn.Sequential(nn.Linear(2, 6), *middle, nn.Tanh(), nn.Dropout(dropout), nn.Linear(6, 3))


def clients(count: int = 3, *, examples: int = 40, poison: dict[int, Poison] | None = None) -> list[Client]:
    """Clients of different sizes."""
    return [
        Client.of(number, blobs(examples + 10 * number, seed=number + 1), poison=(poison or {}).get(number))
        for number in range(count)
    ]


def experiment(**options: object) -> Experiment:
    return Experiment(**{"rounds": 3, "local": LOCAL, **options})  # type: ignore[arg-type]


def state_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same_bytes(one: nn.Module, other: nn.Module) -> bool:
    mine, theirs = state_of(one), state_of(other)
    return mine.keys() == theirs.keys() and all(torch.equal(value, theirs[name]) for name, value in mine.items())


def reply_of(client: int, value: float, *, count: int = 10, loss: float = 1.0) -> Reply:
    """A reply that changes one weight."""
    update = SharedUpdate("delta", {"w": torch.tensor([value])}, count, LocalTraining(0.1))
    return Reply(client, 0, update, count, loss)
