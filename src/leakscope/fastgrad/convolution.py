"""Convolutions of any kind through torch's own kernels, and the choice of Winograd's form where it is faster."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from leakscope.fastgrad.layer import CompiledLayer, require, split_groups
from leakscope.fastgrad.linear import read_weights
from leakscope.fastgrad.trace import Trace, Unsupported, as_pair, find_source
from leakscope.fastgrad.weighted import WeightedLayer
from leakscope.fastgrad.weights import FoldedWeights, Weights
from leakscope.fastgrad.winograd import SIDE, Winograd, pays_off

# Weights up to this size convolve faster with all groups in one call (two to four times for
# LeNet's), larger ones faster one group after the other.
LARGEST_SIDE_BY_SIDE = 40_000


class Convolution(WeightedLayer):
    """y = W ∗ x + b with torch's stride, padding, dilation and channel groups."""

    def __init__(
        self, folded: FoldedWeights, *, module: nn.Conv2d, padding: tuple[int, int], shape: tuple[int, ...]
    ) -> None:
        self.shape = shape
        self.options: tuple[Any, ...] = (module.stride, padding, module.dilation, False, (0, 0), module.groups)
        self._small = folded.weight.value.numel() <= LARGEST_SIDE_BY_SIDE
        super().__init__(folded)

    def apply(self, x: Tensor, weights: Weights, *, groups: int) -> Tensor:
        """One convolution; with weights for each group, side by side or one by one."""
        weight, bias = require(weights.weight), weights.bias
        if weights.shared:
            return torch.ops.aten.convolution(x, weight, bias, *self.options)
        if self._small:
            flat = None if bias is None else bias.reshape(-1)
            wide = torch.ops.aten.convolution(
                _put_side_by_side(x, groups), weight.flatten(0, 1), flat, *self._widen(groups)
            )
            return _take_apart(wide, groups)
        biases = [None] * groups if bias is None else bias
        parts = zip(split_groups(x, groups), weight, biases, strict=True)
        return torch.cat([torch.ops.aten.convolution(part, w, b, *self.options) for part, w, b in parts])

    def transpose(self, grad: Tensor, weights: Weights, *, groups: int) -> Tensor:
        """Return the gradient in the input."""
        weight = require(weights.weight)
        if weights.shared:
            return self._to_input(grad, weight, self.options)
        if self._small:
            return _take_apart(
                self._to_input(_put_side_by_side(grad, groups), weight.flatten(0, 1), self._widen(groups)), groups
            )
        parts = zip(split_groups(grad, groups), weight, strict=True)
        return torch.cat([self._to_input(part, w, self.options) for part, w in parts])

    def correlate(self, grad: Tensor, x: Tensor, *, groups: int) -> Tensor:
        """Return the gradient in the weight, one for each group."""
        weight = self.folded.weight.one
        if groups == 1:
            return self._to_weight(grad, x, weight, self.options).unsqueeze(0)
        if self._small:
            stand_in = weight.new_empty(groups * len(weight), *weight.shape[1:])
            wide = self._to_weight(
                _put_side_by_side(grad, groups), _put_side_by_side(x, groups), stand_in, self._widen(groups)
            )
            return wide.unflatten(0, (groups, -1))
        parts = zip(split_groups(grad, groups), split_groups(x, groups), strict=True)
        return torch.stack([self._to_weight(g, part, weight, self.options) for g, part in parts])

    def _widen(self, groups: int) -> tuple[Any, ...]:
        """Options of the convolution of all groups side by side."""
        return (*self.options[:-1], self.options[-1] * groups)

    def _to_input(self, grad: Tensor, weight: Tensor, options: tuple[Any, ...]) -> Tensor:
        # The kernel reads only the shape of the input.
        channels = weight.shape[1] * options[-1]
        stand_in = grad.new_empty(len(grad), channels, *self.shape[1:])
        return torch.ops.aten.convolution_backward(grad, stand_in, weight, None, *options, (True, False, False))[0]

    def _to_weight(self, grad: Tensor, x: Tensor, weight: Tensor, options: tuple[Any, ...]) -> Tensor:
        return torch.ops.aten.convolution_backward(grad, x, weight, None, *options, (False, True, False))[1]


def _put_side_by_side(x: Tensor, groups: int) -> Tensor:
    """[G·n, C, H, W] → [n, G·C, H, W]: groups of examples become groups of channels."""
    return split_groups(x, groups).transpose(0, 1).flatten(1, 2)


def _take_apart(x: Tensor, groups: int) -> Tensor:
    """The way back from `_put_side_by_side`."""
    return x.unflatten(1, (groups, -1)).transpose(0, 1).flatten(0, 1)


def compile_convolution(trace: Trace, node: fx.Node) -> list[CompiledLayer]:
    """Conv2d with the batch norm behind it."""
    module, shape = trace.module(node), trace.shape(find_source(node))
    if not isinstance(module, nn.Conv2d) or module.padding_mode != "zeros" or len(shape) != 3:
        raise Unsupported(f"{node.name}: only zero-padded convolutions of image batches have a rule")
    folded = read_weights(trace, node)
    if pays_off(module, shape=shape, examples=trace.examples):
        return [Winograd(folded, grid=(shape[1] // SIDE, shape[2] // SIDE), scratch=trace.scratch)]
    return [Convolution(folded, module=module, padding=_read_padding(module, node), shape=shape)]


def _read_padding(module: nn.Conv2d, node: fx.Node) -> tuple[int, int]:
    """Zeros on each side; "same" has no single number where a kernel side is even."""
    if not isinstance(module.padding, str):
        return as_pair(module.padding)
    if module.padding == "valid":
        return (0, 0)
    reach = [dilation * (side - 1) for dilation, side in zip(module.dilation, module.kernel_size, strict=True)]
    if any(length % 2 for length in reach):
        raise Unsupported(f"{node.name} pads its two sides differently")
    return as_pair([length // 2 for length in reach])
