"""Convolutions of any kind through torch's own kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from leakscope.fastgrad.layer import Weighted, needed
from leakscope.fastgrad.op import Weights, by_group
from leakscope.fastgrad.weights import FoldedWeights

# Weights up to this size convolve faster with all groups in one call (two to four times for
# LeNet's), larger ones faster one group after the other.
SIDE_BY_SIDE = 40_000


class Convolution(Weighted):
    """y = W ∗ x + b with torch's stride, padding, dilation and channel groups."""

    def __init__(
        self, folded: FoldedWeights, *, module: nn.Conv2d, padding: tuple[int, int], shape: tuple[int, ...]
    ) -> None:
        self.shape = shape
        self.options: tuple[Any, ...] = (module.stride, padding, module.dilation, False, (0, 0), module.groups)
        self._small = folded.weight.value.numel() <= SIDE_BY_SIDE
        super().__init__(folded)

    def apply(self, x: Tensor, weights: Weights, *, groups: int) -> Tensor:
        """One convolution; with weights for each group, side by side or one by one."""
        weight, bias = needed(weights.weight), weights.bias
        if weights.shared:
            return torch.ops.aten.convolution(x, weight, bias, *self.options)
        if self._small:
            flat = None if bias is None else bias.reshape(-1)
            wide = torch.ops.aten.convolution(_beside(x, groups), weight.flatten(0, 1), flat, *self._wide(groups))
            return _apart(wide, groups)
        biases = [None] * groups if bias is None else bias
        parts = zip(by_group(x, groups), weight, biases, strict=True)
        return torch.cat([torch.ops.aten.convolution(part, w, b, *self.options) for part, w, b in parts])

    def transpose(self, grad: Tensor, weights: Weights, *, groups: int) -> Tensor:
        """Return the gradient in the input."""
        weight = needed(weights.weight)
        if weights.shared:
            return self._to_input(grad, weight, self.options)
        if self._small:
            return _apart(self._to_input(_beside(grad, groups), weight.flatten(0, 1), self._wide(groups)), groups)
        parts = zip(by_group(grad, groups), weight, strict=True)
        return torch.cat([self._to_input(part, w, self.options) for part, w in parts])

    def correlate(self, grad: Tensor, x: Tensor, *, groups: int) -> Tensor:
        """Return the gradient in the weight, one for each group."""
        weight = self.folded.weight.value
        if groups == 1:
            return self._to_weight(grad, x, weight, self.options).unsqueeze(0)
        if self._small:
            stand_in = weight.new_empty(groups * len(weight), *weight.shape[1:])
            wide = self._to_weight(_beside(grad, groups), _beside(x, groups), stand_in, self._wide(groups))
            return wide.unflatten(0, (groups, -1))
        parts = zip(by_group(grad, groups), by_group(x, groups), strict=True)
        return torch.stack([self._to_weight(g, part, weight, self.options) for g, part in parts])

    def _wide(self, groups: int) -> tuple[Any, ...]:
        """Options of the convolution of all groups side by side."""
        return (*self.options[:-1], self.options[-1] * groups)

    def _to_input(self, grad: Tensor, weight: Tensor, options: tuple[Any, ...]) -> Tensor:
        # The kernel reads only the shape of the input.
        channels = weight.shape[1] * options[-1]
        stand_in = grad.new_empty(len(grad), channels, *self.shape[1:])
        return torch.ops.aten.convolution_backward(grad, stand_in, weight, None, *options, (True, False, False))[0]

    def _to_weight(self, grad: Tensor, x: Tensor, weight: Tensor, options: tuple[Any, ...]) -> Tensor:
        return torch.ops.aten.convolution_backward(grad, x, weight, None, *options, (False, True, False))[1]


def _beside(x: Tensor, groups: int) -> Tensor:
    """[G·n, C, H, W] → [n, G·C, H, W]: groups of examples become groups of channels."""
    return by_group(x, groups).transpose(0, 1).flatten(1, 2)


def _apart(x: Tensor, groups: int) -> Tensor:
    """The way back from `_beside`."""
    return x.unflatten(1, (groups, -1)).transpose(0, 1).flatten(0, 1)
