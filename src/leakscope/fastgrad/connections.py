"""Layers that move or combine numbers without weights: reshape, slice, pad, sum, constants."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from leakscope.fastgrad.op import Layout, Memo, Op


class Reshape(Op):
    """Another shape for each example; the order in memory stays."""

    def __init__(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        self.before = before
        self.after = after

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Return the same numbers in the new shape."""
        return inputs[0].reshape(len(inputs[0]), *self.after)

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Return to the old shape."""
        return (grad.reshape(len(grad), *self.before),)


class Slice(Op):
    """Part of each example, chosen by constant slices."""

    def __init__(self, before: tuple[int, ...], index: tuple[slice, ...]) -> None:
        self.before = before
        self.index = index

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Return the chosen part."""
        return inputs[0][self.index]

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Put it back among zeros."""
        result = grad.new_zeros(len(grad), *self.before)
        result[self.index] = grad
        return (result,)


class Pad(Op):
    """Zeros round each example; `widths` in torch's order, last axis first."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        self.widths = widths

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Return the padded value."""
        return functional.pad(inputs[0], self.widths)

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Cut the border off."""
        return (functional.pad(grad, tuple(-width for width in self.widths)),)


class Add(Op):
    """Sum of two branches of equal shape."""

    layout: Layout = "any"

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Return the sum."""
        return inputs[0] + inputs[1]

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Both branches get all of it."""
        return grad, grad

    def push(self, memo: Memo, *tangents: Tensor | None) -> Tensor | None:
        """Add the tangents that are not zero."""
        left, right = tangents
        if left is None or right is None:
            return right if left is None else left
        return left + right


class Scale(Op):
    """Product with a constant; the constant broadcasts against one example."""

    def __init__(self, factor: Tensor | float) -> None:
        self.factor = factor

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Return factor·x."""
        return inputs[0] * self.factor

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """A diagonal matrix is its own transpose."""
        return (grad * self.factor,)


class Shift(Op):
    """Sum with a constant, whose derivative is the identity."""

    def __init__(self, offset: Tensor | float) -> None:
        self.offset = offset

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Return x + offset."""
        return inputs[0] + self.offset

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Return the cotangent unchanged."""
        return (grad,)

    def push(self, memo: Memo, *tangents: Tensor | None) -> Tensor | None:
        """Return the tangent unchanged."""
        return tangents[0]
