"""What every layer of a compiled network can do.

A layer is y = f(x, w). Four things are asked of it, the last two only in "tangents" mode:

    forward   y                                 backward   x̄ = (∂f/∂x)ᵀ ȳ, and w̄ = (∂f/∂w)ᵀ ȳ in the first pass
    push      ẏ = ∂f/∂x·ẋ + ∂f/∂w·ẇ             pull       d/dε of x̄ at (x + εẋ, w + εẇ, ȳ + εȳ̇)

Layers are immutable; all that one pass leaves behind is in a `Memo`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Layout = Literal["plain", "tiles", "any"]


@dataclass(slots=True)
class Weights:
    """What a layer multiplies with and adds: shared by all groups, or with a leading group axis."""

    weight: Tensor | None
    bias: Tensor | None
    shared: bool = True


@dataclass(slots=True)
class Memo:
    """What one pass through one layer leaves behind.

    `pattern` (mask, argmax) is chosen in the first pass and kept in the second: that is what
    makes the network a polynomial of its weights, so that differences are accurate.
    """

    groups: int
    first: bool = True
    keep: bool = False
    weights: Weights | None = None
    change: Weights | None = None
    pattern: Tensor | None = None
    entry: Tensor | None = None
    upstream: Tensor | None = None
    tangent: Tensor | None = None
    gradient: Weights | None = None

    def again(self, weights: Weights | None) -> Memo:
        """A memo for the second pass: same pattern, other weights, nothing recorded."""
        return Memo(groups=self.groups, first=False, weights=weights, pattern=self.pattern)


class Op:
    """A layer without weights that is linear once its pattern is fixed; others override more."""

    layout: Layout = "plain"

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


def by_group(values: Tensor, groups: int) -> Tensor:
    """[G·n, …] as [G, n, …]."""
    return values.reshape(groups, values.shape[0] // groups, *values.shape[1:])
