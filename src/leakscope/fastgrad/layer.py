"""What every layer of a compiled network can do, and the rules common to all layers with weights.

A layer is y = f(x, w). Four things are asked of it, the last two only in "tangents" mode:

    forward   y                                 backward   x̄ = (∂f/∂x)ᵀ ȳ, and w̄ = (∂f/∂w)ᵀ ȳ in the first pass
    push      ẏ = ∂f/∂x·ẋ + ∂f/∂w·ẇ             pull       d/dε of x̄ at (x + εẋ, w + εẇ, ȳ + εȳ̇)

Layers are immutable; all that one pass leaves behind is in a `Memo`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from torch import Tensor

from leakscope.fastgrad.weights import FoldedWeights, LayerParameter, Weights

Layout = Literal["plain", "tiles", "any"]
Recorded = TypeVar("Recorded")


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
    entered: Tensor | None = None
    upstream: Tensor | None = None
    tangent: Tensor | None = None
    gradient: Weights | None = None
    # One for each group, of a layer that normalises by statistics.
    passes: list[Any] | None = None

    def again(self, weights: Weights | None) -> Memo:
        """A memo for the second pass: same pattern, other weights, nothing recorded."""
        return Memo(groups=self.groups, first=False, weights=weights, pattern=self.pattern)


class CompiledLayer:
    """A layer without weights that is linear once its pattern is fixed; others override more."""

    layout: Layout = "plain"
    prepared: Weights | None = None
    parameters: tuple[LayerParameter, ...] = ()

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

    def move_weights(self, direction: Mapping[str, Tensor], sizes: Tensor) -> Weights | None:
        """Return the weights after a step of `sizes` [G, 1] along `direction`."""
        return None

    def change_weights(self, direction: Mapping[str, Tensor], groups: int) -> Weights | None:
        """Return the tangent of the weights along `direction`; None stands for zero."""
        return None


class WeightedLayer(CompiledLayer):
    """A layer bilinear in weight and input: y = S·A(w)·E·x + b.

    `enter` (E) and `leave` (S) are fixed linear maps, the identity for most layers. With X = Ex and
    Ȳ = Sᵀȳ kept from the first pass, the tangents need each of them once:

        ẏ = S(A(w)Eẋ + A(ẇ)X) + ḃ        d/dε x̄ = Eᵀ(A(w)ᵀSᵀȳ̇ + A(ẇ)ᵀȲ)

    Subclasses write `apply`, `transpose` and `correlate`.
    """

    def __init__(self, folded: FoldedWeights) -> None:
        self.folded = folded
        self.parameters = folded.parts
        self.prepared = self.prepare(folded.fold())

    def prepare(self, weights: Weights, *, reuse: bool = False) -> Weights:
        """Bring weights into the form `apply` multiplies with.

        `reuse` allows memory that the next call with `reuse` overwrites.
        """
        return weights

    def enter(self, x: Tensor) -> Tensor:
        """Return Ex."""
        return x

    def leave(self, values: Tensor) -> Tensor:
        """Return S·values."""
        return values

    def leave_transposed(self, grad: Tensor) -> Tensor:
        """Return Sᵀȳ."""
        return grad.contiguous()

    def enter_transposed(self, values: Tensor) -> Tensor:
        """Return Eᵀ·values."""
        return values

    def apply(self, x: Tensor, weights: Weights, *, groups: int) -> Tensor:
        """Return A(w)X, with the bias in it."""
        raise TypeError(f"{type(self).__name__} has no product")

    def transpose(self, grad: Tensor, weights: Weights, *, groups: int) -> Tensor:
        """Return A(w)ᵀȲ."""
        raise TypeError(f"{type(self).__name__} has no transposed product")

    def correlate(self, grad: Tensor, x: Tensor, *, groups: int) -> Tensor:
        """Return w̄ [G, …]: the gradient of ⟨Ȳ, A(w)X⟩ in w."""
        raise TypeError(f"{type(self).__name__} has no weight gradient")

    def sum_bias(self, grad: Tensor, *, groups: int) -> Tensor:
        """Return b̄ [G, out]: Ȳ summed over examples and positions."""
        return sum_positions(grad, groups)

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Return S·A(w)·E·x + b."""
        entered = self.enter(inputs[0])
        if memo.first:
            memo.entered = entered
        return self.leave(self.apply(entered, require(memo.weights), groups=memo.groups))

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Return Eᵀ·A(w)ᵀ·Sᵀ·ȳ; in the first pass also record w̄ and b̄."""
        upstream = self.leave_transposed(grad)
        if memo.first:
            self._record_gradient(memo, upstream)
        return (self.enter_transposed(self.transpose(upstream, require(memo.weights), groups=memo.groups)),)

    def push(self, memo: Memo, *tangents: Tensor | None) -> Tensor | None:
        """Return S(A(w)Eẋ + A(ẇ)X) + ḃ."""
        result = None
        if tangents[0] is not None:
            plain = Weights(require(memo.weights).weight, None)
            result = self.apply(self.enter(tangents[0]), plain, groups=memo.groups)
        if memo.change is not None:
            moved = self.apply(require(memo.entered), memo.change, groups=memo.groups)
            result = moved if result is None else result.add_(moved)
        return None if result is None else self.leave(result)

    def pull(self, memo: Memo, change: Tensor) -> tuple[Tensor, ...]:
        """Return Eᵀ(A(w)ᵀSᵀȳ̇ + A(ẇ)ᵀȲ)."""
        result = self.transpose(self.leave_transposed(change), require(memo.weights), groups=memo.groups)
        if memo.change is not None:
            result.add_(self.transpose(require(memo.upstream), memo.change, groups=memo.groups))
        return (self.enter_transposed(result),)

    def take_gradients(self, memo: Memo) -> dict[str, Tensor]:
        """Split w̄ and b̄ into the gradients of the layer and of the norm folded into it."""
        gradient, memo.gradient = memo.gradient, None
        return {} if gradient is None else self.folded.split(gradient)

    def move_weights(self, direction: Mapping[str, Tensor], sizes: Tensor) -> Weights | None:
        """Move W' and b', each group by its own step; unmoved weights stay shared."""
        if not any(name in direction for name in self.folded.names):
            return self.prepared
        return self.prepare(self.folded.move(direction, sizes).without_group_axis(), reuse=True)

    def change_weights(self, direction: Mapping[str, Tensor], groups: int) -> Weights | None:
        """Return ẇ and ḃ."""
        change = self.folded.merge(direction, groups)
        return None if change is None else self.prepare(change.without_group_axis(), reuse=True)

    def _record_gradient(self, memo: Memo, grad: Tensor) -> None:
        weight = bias = None
        if self.folded.wants_weight:
            weight = self.correlate(grad, require(memo.entered), groups=memo.groups)
        if self.folded.wants_bias:
            bias = self.sum_bias(grad, groups=memo.groups)
        memo.gradient = Weights(weight, bias, shared=False)
        # Only tangents read these again; letting go here is what keeps differences small.
        memo.upstream = grad if memo.keep else None
        memo.entered = memo.entered if memo.keep else None


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
