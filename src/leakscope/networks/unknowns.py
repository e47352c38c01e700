"""Tensors of a network that the server does not know: noise that a client drew, values that it keeps to itself.

They are buffers of a layer that says so. The network runs without knowing them, on values of its own; an attacker who
knows that they are there searches for them beside the pictures.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from torch import Generator, Tensor, nn

from leakscope.types import Tensors


class UnknownTensors(nn.Module):
    """A layer with buffers whose values at the client the server does not know."""

    # Buffers with a row for every example of a step; all others are the same for all examples.
    of_examples: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def start_unknowns(self, examples: int, rng: Generator) -> dict[str, Tensor]:
        """Where a search for them begins, by the name of the buffer, for a step on this many examples."""

    def read_unknowns(self, shared: Tensors) -> dict[str, Tensor]:
        """Those that follow from what was shared of this layer's own parameters; by default none does."""
        return {}


def start_unknowns(model: nn.Module, examples: int, rng: Generator) -> dict[str, Tensor]:
    """The unknown tensors of all layers, by their full names, where a search for them begins."""
    found: dict[str, Tensor] = {}
    for layer, module in _layers(model).items():
        found |= {_join(layer, name): value for name, value in module.start_unknowns(examples, rng).items()}
    return found


def read_unknowns(model: nn.Module, shared: Tensors) -> dict[str, Tensor]:
    """The unknown tensors that follow from what was shared, by their full names."""
    found: dict[str, Tensor] = {}
    for layer, module in _layers(model).items():
        own = {
            name: shared[_join(layer, name)] for name, _ in module.named_parameters() if _join(layer, name) in shared
        }
        found |= {_join(layer, name): value for name, value in module.read_unknowns(own).items()}
    return found


def take_examples(model: nn.Module, given: Tensors, rows: Sequence[int]) -> dict[str, Tensor]:
    """`given` for the examples at `rows` of those it was made for."""
    own = {_join(layer, name) for layer, module in _layers(model).items() for name in module.of_examples}
    return {name: value[list(rows)] if name in own else value for name, value in given.items()}


def _layers(model: nn.Module) -> dict[str, UnknownTensors]:
    return {name: module for name, module in model.named_modules() if isinstance(module, UnknownTensors)}


def _join(layer: str, name: str) -> str:
    return f"{layer}.{name}" if layer else name
