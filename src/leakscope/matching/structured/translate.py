"""Which rule serves which torch module, function or method."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from leakscope.matching.structured import layers, pointwise, rules
from leakscope.matching.structured.arithmetic import ARITHMETIC, arithmetic
from leakscope.matching.structured.op import Op
from leakscope.matching.structured.tracing import Traced
from leakscope.matching.structured.unsupported import Unsupported
from leakscope.networks import normalisation_constants

SIGMOID = rules.smooth(torch.sigmoid, pointwise.sigmoid_slopes)
TANH = rules.smooth(torch.tanh, pointwise.tanh_slopes)
SILU = rules.smooth(functional.silu, pointwise.silu_slopes)
GELU = rules.smooth(functional.gelu, pointwise.gelu_slopes, approximate="none")
SOFTPLUS = rules.smooth(functional.softplus, pointwise.softplus_slopes, beta=1, threshold=20)

MODULES: dict[type[nn.Module], rules.Rule] = {
    nn.Conv2d: layers.convolution,
    nn.Linear: layers.linear,
    nn.BatchNorm1d: layers.batch_norm,
    nn.BatchNorm2d: layers.batch_norm,
    nn.ReLU: rules.relu,
    nn.LeakyReLU: rules.leaky_relu,
    nn.Sigmoid: SIGMOID,
    nn.Tanh: TANH,
    nn.SiLU: SILU,
    nn.GELU: GELU,
    nn.Softplus: SOFTPLUS,
    nn.MaxPool2d: rules.max_pool,
    nn.AvgPool2d: rules.average_pool,
    nn.AdaptiveAvgPool2d: rules.adaptive_pool,
    nn.Flatten: rules.reshape,
    nn.Unflatten: rules.reshape,
    nn.Identity: rules.identity,
    nn.Dropout: rules.dropout,
    nn.Dropout2d: rules.dropout,
}

CALLS: dict[Any, rules.Rule] = {
    **dict.fromkeys(ARITHMETIC, arithmetic),
    **dict.fromkeys((torch.relu, torch.relu_, functional.relu, functional.relu_, "relu", "relu_"), rules.relu),
    **dict.fromkeys((functional.leaky_relu, functional.leaky_relu_), rules.leaky_relu),
    **dict.fromkeys((torch.sigmoid, functional.sigmoid, "sigmoid", "sigmoid_"), SIGMOID),
    **dict.fromkeys((torch.tanh, functional.tanh, "tanh", "tanh_"), TANH),
    **dict.fromkeys((torch.flatten, torch.reshape, torch.squeeze, torch.unsqueeze), rules.reshape),
    **dict.fromkeys(("flatten", "view", "reshape", "squeeze", "unsqueeze"), rules.reshape),
    **dict.fromkeys((torch.mean, "mean"), rules.mean),
    **dict.fromkeys((torch.max_pool2d, functional.max_pool2d), rules.max_pool),
    **dict.fromkeys((functional.dropout, functional.dropout2d), rules.dropout),
    functional.silu: SILU,
    functional.gelu: GELU,
    functional.softplus: SOFTPLUS,
    functional.avg_pool2d: rules.average_pool,
    functional.adaptive_avg_pool2d: rules.adaptive_pool,
    functional.pad: rules.pad,
    operator.getitem: rules.cut,
    "contiguous": rules.identity,
}


def translate(traced: Traced, node: fx.Node) -> list[Op]:
    """The layers, in order, that compute this node from its inputs ([] for identity)."""
    if node.op == "call_module":
        module = traced.module(node)
        constants = normalisation_constants(module)
        if constants is not None:
            return rules.normalise(*constants)
        rule, what = MODULES.get(type(module)), type(module).__name__
    else:
        rule, what = CALLS.get(node.target), str(getattr(node.target, "__name__", node.target))
    if rule is None:
        raise Unsupported(f"no rule for {what} (node {node.name!r})")
    return rule(traced, node)
