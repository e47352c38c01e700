"""The rules shared by all layers with weights: y = S·A(w)·E·x + b, bilinear in (w, x).

`enter` (E) and `leave` (S) are fixed linear maps, the identity for most layers. With X = Ex and
Ȳ = Sᵀȳ kept from the first pass, the tangents need each of them once:

    ẏ = S(A(w)Eẋ + A(ẇ)X) + ḃ        d/dε x̄ = Eᵀ(A(w)ᵀSᵀȳ̇ + A(ẇ)ᵀȲ)
"""

from __future__ import annotations

from typing import TypeVar

from torch import Tensor

from leakscope.fastgrad.op import Memo, Op, Weights, by_group
from leakscope.fastgrad.weights import FoldedWeights

Kept = TypeVar("Kept")


class Weighted(Op):
    """A layer bilinear in weight and input; subclasses write `apply`, `transpose`, `correlate`."""

    def __init__(self, folded: FoldedWeights) -> None:
        self.folded = folded
        self.prepared = self.prepare(folded.folded())

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
        grouped = by_group(grad, groups)
        return grouped.sum([axis for axis in range(1, grouped.ndim) if axis != 2])

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Return S·A(w)·E·x + b."""
        entry = self.enter(inputs[0])
        if memo.first:
            memo.entry = entry
        return self.leave(self.apply(entry, needed(memo.weights), groups=memo.groups))

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Return Eᵀ·A(w)ᵀ·Sᵀ·ȳ; in the first pass also record w̄ and b̄."""
        upstream = self.leave_transposed(grad)
        if memo.first:
            self._record(memo, upstream)
        return (self.enter_transposed(self.transpose(upstream, needed(memo.weights), groups=memo.groups)),)

    def push(self, memo: Memo, *tangents: Tensor | None) -> Tensor | None:
        """Return S(A(w)Eẋ + A(ẇ)X) + ḃ."""
        result = None
        if tangents[0] is not None:
            plain = Weights(needed(memo.weights).weight, None)
            result = self.apply(self.enter(tangents[0]), plain, groups=memo.groups)
        if memo.change is not None:
            step = self.apply(needed(memo.entry), memo.change, groups=memo.groups)
            result = step if result is None else result.add_(step)
        return None if result is None else self.leave(result)

    def pull(self, memo: Memo, change: Tensor) -> tuple[Tensor, ...]:
        """Return Eᵀ(A(w)ᵀSᵀȳ̇ + A(ẇ)ᵀȲ)."""
        result = self.transpose(self.leave_transposed(change), needed(memo.weights), groups=memo.groups)
        if memo.change is not None:
            result.add_(self.transpose(needed(memo.upstream), memo.change, groups=memo.groups))
        return (self.enter_transposed(result),)

    def _record(self, memo: Memo, grad: Tensor) -> None:
        weight = bias = None
        if self.folded.wants_weight:
            weight = self.correlate(grad, needed(memo.entry), groups=memo.groups)
        if self.folded.wants_bias:
            bias = self.sum_bias(grad, groups=memo.groups)
        memo.gradient = Weights(weight, bias, shared=False)
        # Only tangents read these again; letting go here is what keeps differences small.
        memo.upstream = grad if memo.keep else None
        memo.entry = memo.entry if memo.keep else None


def needed(value: Kept | None) -> Kept:
    """The value, which an earlier rule of the same pass has recorded."""
    if value is None:
        raise RuntimeError("the first pass did not record this value")
    return value
