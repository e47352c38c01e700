"""The rules common to all layers with weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from torch import Tensor

from leakscope.fastgrad.layer import CompiledLayer, Memo, require, sum_positions
from leakscope.fastgrad.weights import FoldedWeights, Weights


class WeightedLayer(CompiledLayer):
    """A layer bilinear in weight and input: y = S·A(w)·E·x + b.

    `enter` (E) and `leave` (S) are fixed linear maps, the identity for most layers. With X = Ex and
    Ȳ = Sᵀȳ kept from the first pass, the tangents need each of them once:

        ẏ = S(A(w)Eẋ + A(ẇ)X) + ḃ        d/dε x̄ = Eᵀ(A(w)ᵀSᵀȳ̇ + A(ẇ)ᵀȲ)        d/dε w̄ = C(Sᵀȳ̇, X) + C(Ȳ, Eẋ)

    with w̄ = C(Ȳ, X), the correlation of both sides. Subclasses write `apply`, `transpose` and `correlate`.
    """

    def __init__(self, folded: FoldedWeights) -> None:
        self.folded = folded
        self.parameters = folded.parts
        self._prepared: Weights | None = self.prepare(folded.fold())

    @property
    def prepared(self) -> Weights | None:
        """The weights in the form `apply` multiplies with; those of a moved layer are not kept from pass to pass."""
        return self._prepared or self.prepare(self.folded.fold().without_group_axis())

    def at(self, offset: Mapping[str, Tensor]) -> CompiledLayer:
        """The layer around moved parameters; memory to work in is shared."""
        if not any(name in offset for name in self.folded.names):
            return self
        moved = copy.copy(self)
        moved.folded, moved._prepared = self.folded.at(offset), None
        moved.parameters = moved.folded.parts
        return moved

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
        if memo.records:
            memo.entered = entered
        return self.leave(self.apply(entered, require(memo.weights), groups=memo.groups))

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Return Eᵀ·A(w)ᵀ·Sᵀ·ȳ; where they are wanted also record w̄ and b̄."""
        upstream = self.leave_transposed(grad)
        if memo.records:
            self._record_gradient(memo, upstream)
        return (self.enter_transposed(self.transpose(upstream, require(memo.weights), groups=memo.groups)),)

    def push(self, memo: Memo, *tangents: Tensor | None) -> Tensor | None:
        """Return S(A(w)Eẋ + A(ẇ)X) + ḃ."""
        result = None
        if tangents[0] is not None:
            weights, entered = require(memo.weights), self.enter(tangents[0])
            memo.tangent = entered if memo.curved else None
            result = self.apply(entered, Weights(weights.weight, None, weights.shared), groups=memo.groups)
        if memo.change is not None:
            moved = self.apply(require(memo.entered), memo.change, groups=memo.groups)
            result = moved if result is None else result.add_(moved)
        return None if result is None else self.leave(result)

    def pull(self, memo: Memo, change: Tensor) -> tuple[Tensor, ...]:
        """Return Eᵀ(A(w)ᵀSᵀȳ̇ + A(ẇ)ᵀȲ)."""
        upstream = self.leave_transposed(change)
        if memo.curved:
            self._record_change(memo, upstream)
        result = self.transpose(upstream, require(memo.weights), groups=memo.groups)
        if memo.change is not None:
            result.add_(self.transpose(require(memo.upstream), memo.change, groups=memo.groups))
        return (self.enter_transposed(result),)

    def take_gradients(self, memo: Memo) -> dict[str, Tensor]:
        """Split w̄ and b̄ into the gradients of the layer and of the norm folded into it."""
        gradient, memo.gradient = memo.gradient, memo.gradient if memo.curved else None
        return {} if gradient is None else self.folded.split(gradient, keep=memo.curved)

    def take_changes(self, memo: Memo, direction: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Split the changes of w̄ and b̄ likewise."""
        change, memo.gradient_change = require(memo.gradient_change), None
        return self.folded.split_change(require(memo.gradient), change, direction)

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

    def _record_change(self, memo: Memo, grad: Tensor) -> None:
        weight = bias = None
        if self.folded.wants_weight:
            weight = self.correlate(grad, require(memo.entered), groups=memo.groups)
            if memo.tangent is not None:
                weight += self.correlate(require(memo.upstream), memo.tangent, groups=memo.groups)
        if self.folded.wants_bias:
            bias = self.sum_bias(grad, groups=memo.groups)
        memo.gradient_change = Weights(weight, bias, shared=False)
