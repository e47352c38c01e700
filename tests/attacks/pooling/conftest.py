"""A picture and networks with max pooling that are read in a second."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from leakscope.models.normalise import Normalise
from leakscope.rng import generator, uniform
from leakscope.types import Batch

Network = Callable[..., nn.Sequential]


def _draw(network: nn.Sequential, seed: int) -> nn.Sequential:
    rng = generator(seed, "pooled", "weights")
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(uniform(tuple(weight.shape), rng, like=weight) - 0.5)
    return network


@pytest.fixture
def network() -> Network:
    """Build `blocks` blocks of 3 × 3 convolution, activation and pooling for grey images, then two linear layers."""

    def build(size: int, *, blocks: int = 1, seed: int = 0, activation: nn.Module | None = None) -> nn.Sequential:
        layers: list[nn.Module] = []
        channels, side = 1, size
        for wide in (6, 12)[:blocks]:
            layers += [nn.Conv2d(channels, wide, 3), activation or nn.Sigmoid(), nn.MaxPool2d(2)]
            channels, side = wide, (side - 2) // 2
        layers += [nn.Flatten(), nn.Linear(channels * side * side, 32), nn.Sigmoid(), nn.Linear(32, 4)]
        return _draw(nn.Sequential(*layers), seed)

    return build


@pytest.fixture
def normalised(network: Network) -> Network:
    """The same with a normalisation in front."""
    return lambda size, **options: nn.Sequential(Normalise((0.4,), (0.25,)), network(size, **options))


def picture(size: int) -> Tensor:
    """A smooth picture with a bright patch, [1, 1, size, size]."""
    place = torch.linspace(0, 1, size)
    found = 0.5 + 0.4 * torch.sin(5 * place[:, None]) * torch.cos(4 * place[None, :])
    found[2:5, 4:7] = 0.9
    return found[None, None]


@pytest.fixture
def private() -> Callable[[int], Batch]:
    """The picture of a size as a batch of one."""
    return lambda size: Batch(picture(size), torch.tensor([2]))
