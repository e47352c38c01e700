"""How hard a network is to invert by search: few dense layers, convolutions, or many layers."""

from __future__ import annotations

import enum
from typing import TypeVar

from torch import nn

# Layers with weights; the reference networks have up to 7 of them, or 9 and more together with normalisation.
_MANY = 8
_T = TypeVar("_T")


class NetworkKind(enum.Enum):
    """What the number of steps depends on that a search needs before its end says anything."""

    DENSE = "dense"
    CONVOLUTIONAL = "convolutional"
    DEEP = "deep"

    def choose(self, dense: _T, convolutional: _T, deep: _T) -> _T:
        """The value that belongs to this kind."""
        return {NetworkKind.DENSE: dense, NetworkKind.CONVOLUTIONAL: convolutional, NetworkKind.DEEP: deep}[self]


def kind_of(model: nn.Module) -> NetworkKind:
    """Deep with more than eight layers of weights, dense where all of them are linear, convolutional otherwise.

    Recurrent layers and those of one's own count as convolutions do: little is known of them.
    """
    layers = [module for module in model.modules() if any(own.ndim > 1 for own in module.parameters(recurse=False))]
    if len(layers) > _MANY:
        return NetworkKind.DEEP
    is_dense = all(isinstance(module, nn.Linear) for module in layers)
    return NetworkKind.DENSE if is_dense else NetworkKind.CONVOLUTIONAL
