"""Fully connected layers, batch norm that stands alone, and how the weights of a linear map are read."""

from __future__ import annotations

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from leakscope.fastgrad.batch_norm import compile_batch_statistics, uses_batch_statistics
from leakscope.fastgrad.layer import CompiledLayer, require, split_groups, sum_positions
from leakscope.fastgrad.parameters import LayerParameter, read_norm, read_parameter
from leakscope.fastgrad.trace import Trace, Unsupported, find_source
from leakscope.fastgrad.weighted import WeightedLayer
from leakscope.fastgrad.weights import FoldedWeights, Weights

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


class FullyConnected(WeightedLayer):
    """y = Wx + b for x [N, in]."""

    def apply(self, x: Tensor, weights: Weights, *, groups: int) -> Tensor:
        """One product, or one per group when each group has its own weights."""
        weight = require(weights.weight)
        if weights.shared:
            return functional.linear(x, weight, weights.bias)
        y = torch.bmm(split_groups(x, groups), weight.transpose(1, 2))
        if weights.bias is not None:
            y += weights.bias.unsqueeze(1)
        return y.flatten(0, 1)

    def transpose(self, grad: Tensor, weights: Weights, *, groups: int) -> Tensor:
        """Return Wᵀȳ."""
        weight = require(weights.weight)
        if weights.shared:
            return grad @ weight
        return torch.bmm(split_groups(grad, groups), weight).flatten(0, 1)

    def correlate(self, grad: Tensor, x: Tensor, *, groups: int) -> Tensor:
        """Return ȳxᵀ, summed over the examples of each group."""
        return torch.bmm(split_groups(grad, groups).transpose(1, 2), split_groups(x, groups))


class Channelwise(WeightedLayer):
    """y = a·x + b per channel: batch norm with no linear map before it to fold into."""

    def apply(self, x: Tensor, weights: Weights, *, groups: int) -> Tensor:
        """Return a·x + b."""
        y = split_groups(x, groups) * _spread(require(weights.weight), x)
        if weights.bias is not None:
            y = y + _spread(weights.bias, x)
        return y.reshape(x.shape)

    def transpose(self, grad: Tensor, weights: Weights, *, groups: int) -> Tensor:
        """Return a·ȳ."""
        return self.apply(grad, Weights(weights.weight, None), groups=groups)

    def correlate(self, grad: Tensor, x: Tensor, *, groups: int) -> Tensor:
        """Return the sum of ȳ·x over examples and positions."""
        return sum_positions(grad * x, groups)


def _spread(vector: Tensor, x: Tensor) -> Tensor:
    """[C] or [G, C] against [G, n, C, …]."""
    lead = vector.shape[0] if vector.ndim == 2 else 1
    return vector.reshape(lead, 1, -1, *(1,) * (x.ndim - 2))


def compile_linear(trace: Trace, node: fx.Node) -> list[CompiledLayer]:
    """Linear with the batch norm behind it."""
    if len(trace.shape(find_source(node))) != 1:
        raise Unsupported(f"{node.name}: a linear layer needs one vector for each example")
    return [FullyConnected(read_weights(trace, node))]


def compile_batch_norm(trace: Trace, node: fx.Node) -> list[CompiledLayer]:
    """Nothing where it was folded into the layer before; otherwise a layer of its own."""
    module = trace.module(node)
    if isinstance(module, BATCH_NORMS) and uses_batch_statistics(module):
        return [compile_batch_statistics(module, trace.shared_names, like=trace.values[node])]
    if _find_norm_behind(trace, find_source(node)) is node:
        return []
    norm = read_norm(_check_norm(trace, node), trace.shared_names)
    return [Channelwise(FoldedWeights(LayerParameter(torch.ones_like(norm.mean)), norm=norm))]


def read_weights(trace: Trace, node: fx.Node) -> FoldedWeights:
    """Parameters of a linear or convolutional layer with the batch norm behind it."""
    module, names = trace.module(node), trace.shared_names
    weight = read_parameter(module.weight, names)  # type: ignore[arg-type]
    if weight is None:
        raise Unsupported(f"{node.name} has no weight")
    behind = _find_norm_behind(trace, node)
    norm = None if behind is None else read_norm(_check_norm(trace, behind), names)
    return FoldedWeights(weight, read_parameter(module.bias, names), norm)  # type: ignore[arg-type]


def _find_norm_behind(trace: Trace, node: fx.Node) -> fx.Node | None:
    """The batch norm with stored statistics that alone reads the output of a convolution or linear layer."""
    if node.op != "call_module" or type(trace.module(node)) not in (nn.Conv2d, nn.Linear) or len(node.users) != 1:
        return None
    user = next(iter(node.users))
    if user.op != "call_module" or type(trace.module(user)) not in BATCH_NORMS or len(trace.shape(node)) not in (1, 3):
        return None
    return None if uses_batch_statistics(trace.module(user)) else user


def _check_norm(trace: Trace, node: fx.Node) -> nn.BatchNorm1d | nn.BatchNorm2d:
    module = trace.module(node)
    if not isinstance(module, BATCH_NORMS):
        raise Unsupported(f"{node.name} is not a batch norm")
    return module
