"""What a network is built from, and the small pieces that several families share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from torch import nn

from leakscope.models.normalise import Normalise

Activation = Callable[[], nn.Module]

# Never in place: an attack differentiates twice and hooks read the values before the activation.
ACTIVATIONS: dict[str, Activation] = {
    "relu": nn.ReLU,
    "leaky-relu": partial(nn.LeakyReLU, 0.2),
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
}


@dataclass(frozen=True)
class NetworkPlan:
    """The choices a family turns into layers."""

    num_classes: int
    in_channels: int
    height: int
    width: int
    activation: Activation
    mean: Sequence[float]
    std: Sequence[float]
    hidden: tuple[int, ...] = ()

    def normalise(self) -> Normalise:
        """Return the first layer."""
        return Normalise(self.mean, self.std)


def chain(plan: NetworkPlan, layers: Sequence[tuple[str, nn.Module]]) -> nn.Sequential:
    """Return the layers in order behind the normalisation, each under its own name."""
    return nn.Sequential(OrderedDict([("normalise", plan.normalise()), *layers]))
