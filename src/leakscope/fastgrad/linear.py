"""Fully connected layers, and batch norm that stands alone."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from leakscope.fastgrad.layer import Weighted, needed
from leakscope.fastgrad.op import Weights, by_group


class Linear(Weighted):
    """y = Wx + b for x [N, in]."""

    def apply(self, x: Tensor, weights: Weights, *, groups: int) -> Tensor:
        """One product, or one per group when each group has its own weights."""
        weight = needed(weights.weight)
        if weights.shared:
            return functional.linear(x, weight, weights.bias)
        y = torch.bmm(by_group(x, groups), weight.transpose(1, 2))
        if weights.bias is not None:
            y += weights.bias.unsqueeze(1)
        return y.flatten(0, 1)

    def transpose(self, grad: Tensor, weights: Weights, *, groups: int) -> Tensor:
        """Return Wᵀȳ."""
        weight = needed(weights.weight)
        if weights.shared:
            return grad @ weight
        return torch.bmm(by_group(grad, groups), weight).flatten(0, 1)

    def correlate(self, grad: Tensor, x: Tensor, *, groups: int) -> Tensor:
        """Return ȳxᵀ, summed over the examples of each group."""
        return torch.bmm(by_group(grad, groups).transpose(1, 2), by_group(x, groups))


class Channelwise(Weighted):
    """y = a·x + b per channel: batch norm with no linear map before it to fold into."""

    def apply(self, x: Tensor, weights: Weights, *, groups: int) -> Tensor:
        """Return a·x + b."""
        y = by_group(x, groups) * _spread(needed(weights.weight), x)
        if weights.bias is not None:
            y = y + _spread(weights.bias, x)
        return y.reshape(x.shape)

    def transpose(self, grad: Tensor, weights: Weights, *, groups: int) -> Tensor:
        """Return a·ȳ."""
        return self.apply(grad, Weights(weights.weight, None), groups=groups)

    def correlate(self, grad: Tensor, x: Tensor, *, groups: int) -> Tensor:
        """Return the sum of ȳ·x over examples and positions."""
        product = by_group(grad * x, groups)
        return product.sum([axis for axis in range(1, product.ndim) if axis != 2])


def _spread(vector: Tensor, x: Tensor) -> Tensor:
    """[C] or [G, C] against [G, n, C, …]."""
    lead = vector.shape[0] if vector.ndim == 2 else 1
    return vector.reshape(lead, 1, -1, *(1,) * (x.ndim - 2))
