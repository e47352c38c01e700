"""Pooling: a maximum keeps its argmax as pattern; averages are linear.

`shape` is the input's shape without the batch axis, known when the network is compiled.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional

from leakscope.fastgrad.layer import CompiledLayer, Memo, require
from leakscope.fastgrad.trace import Trace, Unsupported, as_pair, find_source, read_options

Shape = tuple[int, ...]


class MaxPool(CompiledLayer):
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
        channels, height, width = self.shape
        result = grad.new_zeros(len(grad), channels, height * width)
        result.scatter_add_(2, require(memo.pattern).flatten(2), grad.flatten(2))
        return (result.view(len(grad), *self.shape),)


class AveragePool(CompiledLayer):
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


class AdaptiveAveragePool(CompiledLayer):
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


class Mean(CompiledLayer):
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


def compile_max_pool(trace: Trace, node: fx.Node) -> list[CompiledLayer]:
    """Maximum over windows."""
    defaults = {"kernel_size": 2, "stride": None, "padding": 0, "dilation": 1, "ceil_mode": False}
    chosen = read_options(trace, node, defaults=defaults | {"return_indices": False})
    if chosen.pop("return_indices"):
        raise Unsupported(f"{node.name} returns indices")
    return [MaxPool(_read_image_shape(trace, node), **chosen)]


def compile_average_pool(trace: Trace, node: fx.Node) -> list[CompiledLayer]:
    """Mean over windows."""
    defaults = {"kernel_size": 2, "stride": None, "padding": 0, "ceil_mode": False}
    chosen = read_options(trace, node, defaults=defaults | {"count_include_pad": True, "divisor_override": None})
    kernel = as_pair(chosen["kernel_size"])
    stride = kernel if chosen["stride"] in (None, ()) else as_pair(chosen["stride"])
    rest = (chosen["ceil_mode"], chosen["count_include_pad"], chosen["divisor_override"])
    return [AveragePool(_read_image_shape(trace, node), kernel, stride, as_pair(chosen["padding"]), *rest)]


def compile_adaptive_pool(trace: Trace, node: fx.Node) -> list[CompiledLayer]:
    """Mean over the cells of a grid; a grid of one cell is the mean of the image."""
    before, after = _read_image_shape(trace, node), as_pair(trace.shape(node)[-2:])
    if after == (1, 1):
        return [Mean(before, axes=(2, 3), keep=True)]
    return [AdaptiveAveragePool(before, after)]


def compile_mean(trace: Trace, node: fx.Node) -> list[CompiledLayer]:
    """Mean over axes other than the batch."""
    chosen = read_options(trace, node, defaults={"dim": (), "keepdim": False})
    before = trace.shape(find_source(node))
    axes = chosen["dim"] if isinstance(chosen["dim"], tuple | list) else (chosen["dim"],)
    positive = tuple(sorted(axis % (len(before) + 1) for axis in axes if axis is not None))
    if not positive or 0 in positive:
        raise Unsupported(f"{node.name} averages over the batch")
    return [Mean(before, axes=positive, keep=bool(chosen["keepdim"]))]


def _read_image_shape(trace: Trace, node: fx.Node) -> tuple[int, ...]:
    shape = trace.shape(find_source(node))
    if len(shape) != 3:
        raise Unsupported(f"{node.name} pools something that is not an image batch")
    return shape
