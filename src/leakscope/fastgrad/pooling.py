"""Pooling: a maximum keeps its argmax as pattern; averages are linear.

`shape` is the input's shape without the batch axis, known when the network is compiled.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from leakscope.fastgrad.op import Memo, Op

Shape = tuple[int, ...]


class MaxPool(Op):
    """Maximum over windows; the positions of the maxima are the pattern."""

    def __init__(self, shape: Shape, **options: Any) -> None:
        self.shape = shape
        self.options = options

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Take the values at the positions chosen in the first pass."""
        x = inputs[0]
        if memo.pattern is None:
            y, memo.pattern = functional.max_pool2d_with_indices(x, **self.options)
            return y
        places = memo.pattern
        return x.flatten(2).gather(2, places.flatten(2)).reshape(places.shape)

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Put each number back where its maximum was; windows may overlap, so add."""
        if memo.pattern is None:
            raise RuntimeError("no pattern yet: run forward first")
        channels, height, width = self.shape
        result = grad.new_zeros(len(grad), channels, height * width)
        result.scatter_add_(2, memo.pattern.flatten(2), grad.flatten(2))
        return (result.view(len(grad), *self.shape),)


class AveragePool(Op):
    """Mean over windows, in torch's argument order."""

    def __init__(self, shape: Shape, *options: Any) -> None:
        self.shape = shape
        self.options = options

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Return the mean of each window."""
        return torch.ops.aten.avg_pool2d(inputs[0], *self.options)

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Spread each number over its window."""
        # Only the shape of the input is read, so its memory need not be written.
        stand_in = grad.new_empty(len(grad), *self.shape)
        return (torch.ops.aten.avg_pool2d_backward(grad.contiguous(), stand_in, *self.options),)


class AdaptiveAveragePool(Op):
    """Mean over a grid of nearly equal windows."""

    def __init__(self, shape: Shape, size: tuple[int, int]) -> None:
        self.shape = shape
        self.size = size

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Return one mean for each cell of the grid."""
        return functional.adaptive_avg_pool2d(inputs[0], self.size)

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Spread each number over its cell."""
        stand_in = grad.new_empty(len(grad), *self.shape)
        return (torch.ops.aten._adaptive_avg_pool2d_backward(grad.contiguous(), stand_in),)


class Mean(Op):
    """Mean over whole axes (none of them the batch)."""

    def __init__(self, shape: Shape, *, axes: Shape, keep: bool) -> None:
        self.shape = shape
        self.axes = axes
        self.keep = keep
        self.count = math.prod(shape[axis - 1] for axis in axes)

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Return the mean."""
        return inputs[0].mean(self.axes, keepdim=self.keep)

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Every averaged number gets the same share."""
        share = grad / self.count
        if not self.keep:
            for axis in sorted(self.axes):
                share = share.unsqueeze(axis)
        return (share.expand(len(grad), *self.shape),)
