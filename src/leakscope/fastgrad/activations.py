"""Activations: piecewise linear ones keep their pattern, smooth ones know two derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional

from leakscope.fastgrad.layer import CompiledLayer, Layout, Memo, require
from leakscope.fastgrad.trace import Trace, Unsupported, read_options

Slopes = Callable[[Tensor], tuple[Tensor, Tensor]]


class ReLU(CompiledLayer):
    """max(x, 0); its positive outputs are the pattern."""

    layout: Layout = "any"

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Return x where the first pass was positive, 0 elsewhere."""
        if memo.pattern is None:
            memo.pattern = inputs[0].clamp_min(0)
            return memo.pattern
        return torch.ops.aten.threshold_backward(inputs[0], memo.pattern, 0)

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Let through what the first pass let through."""
        return (torch.ops.aten.threshold_backward(grad, require(memo.pattern), 0),)


class LeakyReLU(CompiledLayer):
    """x where positive, slope·x elsewhere; the signs of x are the pattern."""

    layout: Layout = "any"

    def __init__(self, slope: float) -> None:
        self.slope = slope

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Multiply by 1 or slope, as the first pass decided."""
        if memo.pattern is None:
            memo.pattern = inputs[0]
        return self.backward(memo, inputs[0])[0]

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """The same diagonal matrix as forward."""
        return (torch.ops.aten.leaky_relu_backward(grad, require(memo.pattern), self.slope, False),)


class Smooth(CompiledLayer):
    """A twice differentiable function of each number; the first input x is the pattern.

    Backward is ȳ·f'(x); its tangent is ȳ̇·f'(x) + ȳ·f''(x)·ẋ. A second pass at x + δ uses the
    same expansion, f(x) + f'(x)·δ and f'(x) + f''(x)·δ, so differences see no higher terms.
    """

    layout: Layout = "any"

    def __init__(self, value: Callable[[Tensor], Tensor], slopes: Slopes) -> None:
        self.value = value
        self.slopes = slopes

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Return f(x), or its expansion around the first pass."""
        if memo.pattern is None:
            memo.pattern = inputs[0]
            return self.value(inputs[0])
        memo.tangent = inputs[0] - memo.pattern
        return self.value(memo.pattern).addcmul_(self.slopes(memo.pattern)[0], memo.tangent)

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Return ȳ·f'(x), or ȳ times its expansion."""
        slope, curvature = self.slopes(require(memo.pattern))
        if memo.first:
            memo.upstream = grad if memo.keep else None
        elif memo.tangent is not None:
            slope = slope.addcmul_(curvature, memo.tangent)
        return (grad * slope,)

    def push(self, memo: Memo, *tangents: Tensor | None) -> Tensor | None:
        """Return f'(x)·ẋ."""
        memo.tangent = tangents[0]
        return None if tangents[0] is None else tangents[0] * self.slopes(require(memo.pattern))[0]

    def pull(self, memo: Memo, change: Tensor) -> tuple[Tensor, ...]:
        """Return ȳ̇·f'(x) + ȳ·f''(x)·ẋ."""
        slope, curvature = self.slopes(require(memo.pattern))
        result = change * slope
        if memo.tangent is not None and memo.upstream is not None:
            result.addcmul_(memo.upstream * curvature, memo.tangent)
        return (result,)


def sigmoid_slopes(x: Tensor) -> tuple[Tensor, Tensor]:
    """σ' = σ(1 − σ), σ'' = σ'(1 − 2σ)."""
    y = x.sigmoid()
    slope = y * (1 - y)
    return slope, slope * (1 - 2 * y)


def tanh_slopes(x: Tensor) -> tuple[Tensor, Tensor]:
    """1 − tanh², −2·tanh·(1 − tanh²)."""
    y = x.tanh()
    slope = 1 - y * y
    return slope, -2 * y * slope


def softplus_slopes(x: Tensor) -> tuple[Tensor, Tensor]:
    """σ(x), σ(x)(1 − σ(x)); above 20 the function is the identity, as in torch."""
    y = torch.where(x > 20, torch.ones_like(x), x.sigmoid())
    return y, y * (1 - y)


def silu_slopes(x: Tensor) -> tuple[Tensor, Tensor]:
    """σ + xσ', 2σ' + xσ''."""
    slope, curvature = sigmoid_slopes(x)
    return x.sigmoid() + x * slope, 2 * slope + x * curvature


def gelu_slopes(x: Tensor) -> tuple[Tensor, Tensor]:
    """Φ + xφ, φ(2 − x²), with the normal distribution Φ and its density φ."""
    density = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return 0.5 * (1 + torch.erf(x / math.sqrt(2))) + x * density, density * (2 - x * x)


def compile_relu(trace: Trace, node: fx.Node) -> list[CompiledLayer]:
    """max(x, 0)."""
    return [ReLU()]


def compile_leaky_relu(trace: Trace, node: fx.Node) -> list[CompiledLayer]:
    """Two slopes."""
    return [LeakyReLU(float(read_options(trace, node, defaults={"negative_slope": 0.01})["negative_slope"]))]


def _compile_smooth(
    trace: Trace, node: fx.Node, *, value: Callable[[Tensor], Tensor], slopes: Slopes, **standard: Any
) -> list[CompiledLayer]:
    """A smooth activation, whose options must be the `standard` ones."""
    options = read_options(trace, node, defaults=standard)
    # Torch writes `inplace` into every call; what it overwrites is seen to by the compiler.
    if {name: options[name] for name in standard} != standard:
        raise Unsupported(f"{node.name} has options other than {standard}")
    return [Smooth(value, slopes)]


compile_sigmoid = partial(_compile_smooth, value=torch.sigmoid, slopes=sigmoid_slopes)
compile_tanh = partial(_compile_smooth, value=torch.tanh, slopes=tanh_slopes)
compile_silu = partial(_compile_smooth, value=functional.silu, slopes=silu_slopes)
compile_gelu = partial(_compile_smooth, value=functional.gelu, slopes=gelu_slopes, approximate="none")
compile_softplus = partial(_compile_smooth, value=functional.softplus, slopes=softplus_slopes, beta=1, threshold=20)
