"""Rules for +, −, ×, ÷: two branches may be added, a constant may do anything."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

from leakscope.fastgrad import connections
from leakscope.fastgrad.op import Op
from leakscope.fastgrad.trace import Traced
from leakscope.fastgrad.unsupported import Unsupported

ARITHMETIC: dict[Any, str] = {
    **dict.fromkeys((operator.add, operator.iadd, torch.add, "add", "add_"), "add"),
    **dict.fromkeys((operator.sub, operator.isub, torch.sub, "sub", "sub_"), "sub"),
    **dict.fromkeys((operator.mul, operator.imul, torch.mul, "mul", "mul_"), "mul"),
    **dict.fromkeys((operator.truediv, operator.itruediv, torch.div, "div", "div_"), "div"),
}


def arithmetic(traced: Traced, node: fx.Node) -> list[Op]:
    """Sum of two branches, or one branch and a constant."""
    if node.kwargs:
        raise Unsupported(f"{node.name} is called with {', '.join(node.kwargs)}")
    branches = [arg for arg in node.args if isinstance(arg, fx.Node) and arg not in traced.constant]
    kind = ARITHMETIC[node.target]
    if any(not isinstance(traced.values[branch], Tensor) for branch in branches):
        raise Unsupported(f"{node.name} computes with the shape of its input")
    if any(traced.shape(branch) != traced.shape(node) for branch in branches):
        raise Unsupported(f"{node.name} broadcasts a value that depends on the input")
    if len(branches) == 2:
        if kind != "add":
            raise Unsupported(f"{node.name}: two values that depend on the input may only be added, not {kind}")
        return [connections.Add()]
    return _with_constant(kind, _constant(traced, node), reverse=node.args[0] is not branches[0], name=node.name)


def _constant(traced: Traced, node: fx.Node) -> Any:
    (other,) = [arg for arg in node.args if not isinstance(arg, fx.Node) or arg in traced.constant]
    if not isinstance(other, fx.Node):
        return other
    value = traced.values[other]
    if not isinstance(value, Tensor):
        return value
    if value.requires_grad or id(value) in traced.shared_names:
        raise Unsupported(f"{node.name} uses a parameter outside a known layer")
    if value.ndim > len(traced.shape(node)):
        if value.shape[0] != 1:
            raise Unsupported(f"{node.name} has another constant for each example")
        value = value[0]
    return value.detach()


def _with_constant(kind: str, constant: Any, *, reverse: bool, name: str) -> list[Op]:
    if kind == "add":
        return [connections.Shift(constant)]
    if kind == "mul":
        return [connections.Scale(constant)]
    if kind == "sub":
        return [connections.Scale(-1.0), connections.Shift(constant)] if reverse else [connections.Shift(-constant)]
    if reverse:
        raise Unsupported(f"{name} divides by a value that depends on the input")
    return [connections.Scale(1 / constant)]
