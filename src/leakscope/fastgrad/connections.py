"""What stands between the layers of a network: reshapes, slices, padding, sums of branches, constants.

Two values that depend on the input may be added; a constant may be added, subtracted, multiplied or divided by.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional

from leakscope.fastgrad.layer import CompiledLayer, Layout, Memo
from leakscope.fastgrad.trace import Trace, Unsupported, find_source, read_options
from leakscope.networks import normalisation_constants

ARITHMETIC: dict[Any, str] = {
    **dict.fromkeys((operator.add, operator.iadd, torch.add, "add", "add_"), "add"),
    **dict.fromkeys((operator.sub, operator.isub, torch.sub, "sub", "sub_"), "sub"),
    **dict.fromkeys((operator.mul, operator.imul, torch.mul, "mul", "mul_"), "mul"),
    **dict.fromkeys((operator.truediv, operator.itruediv, torch.div, "div", "div_"), "div"),
}


class Reshape(CompiledLayer):
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


class Slice(CompiledLayer):
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


class Pad(CompiledLayer):
    """Zeros around each example; `widths` in torch's order, last axis first."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        self.widths = widths

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Return the padded value."""
        return functional.pad(inputs[0], self.widths)

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Cut the border off."""
        return (functional.pad(grad, tuple(-width for width in self.widths)),)


class Add(CompiledLayer):
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


class Scale(CompiledLayer):
    """Product with a constant; the constant broadcasts against one example."""

    def __init__(self, factor: Tensor | float) -> None:
        self.factor = factor

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Return factor·x."""
        return inputs[0] * self.factor

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """A diagonal matrix is its own transpose."""
        return (grad * self.factor,)


class Shift(CompiledLayer):
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


def compile_identity(trace: Trace, node: fx.Node) -> list[CompiledLayer]:
    """Nothing to compute."""
    return []


def compile_dropout(trace: Trace, node: fx.Node) -> list[CompiledLayer]:
    """Identity in evaluation mode, and where nothing is dropped."""
    options = read_options(trace, node, defaults={"p": 0.5, "training": True})
    if options["training"] and options["p"] != 0:
        raise Unsupported(f"{node.name} drops at random; put the model in evaluation mode")
    return []


def compile_reshape(trace: Trace, node: fx.Node) -> list[CompiledLayer]:
    """View, flatten, squeeze: the same numbers in the same order, example by example."""
    before, after = trace.shape(find_source(node)), trace.shape(node)
    if len(trace.values[node]) != len(trace.values[find_source(node)]) or math.prod(before) != math.prod(after):
        raise Unsupported(f"{node.name} mixes the examples of a batch")
    return [] if before == after else [Reshape(before, after)]


def compile_slice(trace: Trace, node: fx.Node) -> list[CompiledLayer]:
    """x[:, a:b, ::s]: slices with constant bounds that leave the batch alone."""
    index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
    constant = all(isinstance(part, slice) and not _has_traced_bounds(part) for part in index)
    if not constant or index[0] != slice(None):
        raise Unsupported(f"{node.name} indexes by something other than constant slices behind the batch axis")
    return [Slice(trace.shape(find_source(node)), tuple(index))]  # type: ignore[arg-type]


def _has_traced_bounds(part: slice) -> bool:
    return any(isinstance(bound, fx.Node) for bound in (part.start, part.stop, part.step))


def compile_pad(trace: Trace, node: fx.Node) -> list[CompiledLayer]:
    """Zero padding behind the batch axis."""
    chosen = read_options(trace, node, defaults={"pad": (), "mode": "constant", "value": None})
    widths = tuple(chosen["pad"])
    zero = chosen["mode"] == "constant" and chosen["value"] in (None, 0)
    if not zero or len(widths) > 2 * len(trace.shape(find_source(node))) or min(widths, default=0) < 0:
        raise Unsupported(f"{node.name} pads with something other than zeros behind the batch axis")
    return [Pad(widths)]


def compile_normalise(trace: Trace, node: fx.Node) -> list[CompiledLayer]:
    """(x − mean)/std with one constant per channel."""
    found = normalisation_constants(trace.module(node))
    assert found is not None  # the compiler chose this rule because there are constants
    mean, std = (constants.detach().reshape(-1, 1, 1) for constants in found)
    return [Shift(-mean), Scale(1 / std)]


def compile_arithmetic(trace: Trace, node: fx.Node) -> list[CompiledLayer]:
    """Sum of two branches, or one branch and a constant."""
    if node.kwargs:
        raise Unsupported(f"{node.name} is called with {', '.join(node.kwargs)}")
    branches = [arg for arg in node.args if isinstance(arg, fx.Node) and arg not in trace.constant]
    kind = ARITHMETIC[node.target]
    if any(not isinstance(trace.values[branch], Tensor) for branch in branches):
        raise Unsupported(f"{node.name} computes with the shape of its input")
    if any(trace.shape(branch) != trace.shape(node) for branch in branches):
        raise Unsupported(f"{node.name} broadcasts a value that depends on the input")
    if len(branches) == 2:
        if kind != "add":
            raise Unsupported(f"{node.name}: two values that depend on the input may only be added, not {kind}")
        return [Add()]
    return _compile_with_constant(
        kind, _read_constant(trace, node), reverse=node.args[0] is not branches[0], name=node.name
    )


def _read_constant(trace: Trace, node: fx.Node) -> Any:
    (other,) = [arg for arg in node.args if not isinstance(arg, fx.Node) or arg in trace.constant]
    if not isinstance(other, fx.Node):
        return other
    value = trace.values[other]
    if not isinstance(value, Tensor):
        return value
    if value.ndim > len(trace.shape(node)):
        if value.shape[0] != 1:
            raise Unsupported(f"{node.name} has another constant for each example")
        value = value[0]
    return value.detach()


def _compile_with_constant(kind: str, constant: Any, *, reverse: bool, name: str) -> list[CompiledLayer]:
    if kind == "add":
        return [Shift(constant)]
    if kind == "mul":
        return [Scale(constant)]
    if kind == "sub":
        return [Scale(-1.0), Shift(constant)] if reverse else [Shift(-constant)]
    if reverse:
        raise Unsupported(f"{name} divides by a value that depends on the input")
    return [Scale(1 / constant)]
