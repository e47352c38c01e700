"""What every layer of a compiled network can do.

A layer is y = f(x, w). Four things are asked of it, the last two only in "tangents" mode:

    forward   y                                 backward   x̄ = (∂f/∂x)ᵀ ȳ, and w̄ = (∂f/∂w)ᵀ ȳ in the first pass
    push      ẏ = ∂f/∂x·ẋ + ∂f/∂w·ẇ             pull       d/dε of x̄ at (x + εẋ, w + εẇ, ȳ + εȳ̇)

A pass that is `curved` also gives d/dε of w̄, a row of the Hessian: that is how one local step bears on the next.
Layers are immutable; all that one pass leaves behind is in a `Memo`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from torch import Tensor

from leakscope.fastgrad.parameters import LayerParameter
from leakscope.fastgrad.weights import Weights

Layout = Literal["plain", "tiles", "any"]
Recorded = TypeVar("Recorded")


@dataclass(slots=True)
class Memo:
    """What one pass through one layer leaves behind.

    `pattern` (mask, argmax) is chosen in the first pass and kept in the second: that is what
    makes the network a polynomial of its weights, so that differences are accurate.
    `curved`: the change of the weights' gradients is asked for as well.
    """

    groups: int
    first: bool = True
    keep: bool = False
    curved: bool = False
    weights: Weights | None = None
    change: Weights | None = None
    pattern: Tensor | None = None
    entered: Tensor | None = None
    upstream: Tensor | None = None
    tangent: Tensor | None = None
    gradient: Weights | None = None
    gradient_change: Weights | None = None
    # One for each group, of a layer that normalises by statistics.
    passes: list[Any] | None = None

    @property
    def records(self) -> bool:
        """Whether the gradients of the weights are wanted of this pass."""
        return self.first or self.curved

    def again(self, weights: Weights | None) -> Memo:
        """A memo for the second pass: same pattern, other weights, nothing recorded yet."""
        return Memo(groups=self.groups, first=False, curved=self.curved, weights=weights, pattern=self.pattern)


class CompiledLayer:
    """A layer without weights that is linear once its pattern is fixed; others override more."""

    layout: Layout = "plain"
    parameters: tuple[LayerParameter, ...] = ()

    @property
    def prepared(self) -> Weights | None:
        """The weights in the form the rules multiply with."""
        return None

    def at(self, offset: Mapping[str, Tensor]) -> CompiledLayer:
        """The layer with its named parameters moved, each group by its own `offset` [G, …]."""
        return self

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Return f(inputs), recording what the other three need."""
        raise TypeError(f"{type(self).__name__} has no forward rule")

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Return one cotangent per input."""
        raise TypeError(f"{type(self).__name__} has no backward rule")

    def push(self, memo: Memo, *tangents: Tensor | None) -> Tensor | None:
        """Return the tangent of the output; None stands for zero."""
        if tangents[0] is None:
            return None
        return self.forward(memo.again(None), tangents[0])

    def pull(self, memo: Memo, change: Tensor) -> tuple[Tensor, ...]:
        """Return the tangents of the cotangents of the inputs."""
        return self.backward(memo, change)

    def take_gradients(self, memo: Memo) -> dict[str, Tensor]:
        """Move the gradients [G, …] of the named parameters out of the memo of a first pass."""
        return {}

    def take_changes(self, memo: Memo, direction: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Move out of the memo how those gradients change when the parameters move along `direction`."""
        return {}

    def move_weights(self, direction: Mapping[str, Tensor], sizes: Tensor) -> Weights | None:
        """Return the weights after a step of `sizes` [G, 1] along `direction`."""
        return None

    def change_weights(self, direction: Mapping[str, Tensor], groups: int) -> Weights | None:
        """Return the tangent of the weights along `direction`; None stands for zero."""
        return None


def split_groups(values: Tensor, groups: int) -> Tensor:
    """[G·n, …] as [G, n, …]."""
    return values.reshape(groups, values.shape[0] // groups, *values.shape[1:])


def sum_positions(values: Tensor, groups: int) -> Tensor:
    """[G·n, C, …] summed over examples and positions: [G, C]."""
    grouped = split_groups(values, groups)
    return grouped.sum([axis for axis in range(1, grouped.ndim) if axis != 2])


def require(value: Recorded | None) -> Recorded:
    """The value, which an earlier rule of the same pass has recorded."""
    if value is None:
        raise RuntimeError("the first pass did not record this value")
    return value
