"""Networks and received models for the tests of detectors."""

from __future__ import annotations

import torch
from torch import nn

from leakscope.inspection import Received, receive
from leakscope.rng import generator, uniform
from leakscope.types import Batch


def rectified(*, inputs: int = 36, hidden: int = 32, classes: int = 4, seed: int = 0) -> nn.Sequential:
    """A rectified network of three linear layers on 1 × 6 × 6 pictures."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 24), nn.ReLU(), nn.Linear(24, classes)]
        return nn.Sequential(nn.Flatten(), *layers)


def convolving(*, classes: int = 4, seed: int = 0) -> nn.Sequential:
    """Two convolutions and two linear layers on 1 × 6 × 6 pictures."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        first, second = nn.Conv2d(1, 8, 5, padding=2), nn.Conv2d(8, 12, 3, padding=1)
        return nn.Sequential(
            first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(432, 20), nn.ReLU(), nn.Linear(20, classes)
        )


def pictures(count: int = 32, *, classes: int = 4, seed: int = 0) -> Batch:
    """Noise pictures with every class in turn."""
    return Batch(uniform((count, 1, 6, 6), generator(seed, "pictures")), torch.arange(count) % classes)


def tensors(**values: torch.Tensor) -> Received:
    """A received model of which only the tensors are known; `fc__weight` stands for fc.weight."""
    return receive({name.replace("__", "."): value for name, value in values.items()})


def random_rows(rows: int, width: int, *, seed: int = 0) -> torch.Tensor:
    """Normal numbers."""
    return torch.randn(rows, width, generator=generator(seed, "rows"))


def value(detector, received: Received, figure: str, tensor: str | None = None) -> float:
    """The largest value of one figure, of one tensor where it is named."""
    found = [one for one in detector.measure(received) if one.figure == figure]
    return max(one.value for one in found if tensor in (None, one.tensor))


def weight_of(network: nn.Sequential, place: int) -> torch.Tensor:
    """The weight of one layer."""
    return network[place].get_parameter("weight")


def bias_of(network: nn.Sequential, place: int) -> torch.Tensor:
    """The bias of one layer."""
    return network[place].get_parameter("bias")
