"""Reading the arguments of a traced call, whether it was a module, a function or a method."""

from __future__ import annotations

from typing import Any

from torch import fx

from leakscope.fastgrad.trace import Traced
from leakscope.fastgrad.unsupported import Unsupported

IN_PLACE_OPERATORS = ("iadd", "isub", "imul", "itruediv")


def source(node: fx.Node) -> fx.Node:
    """The node whose value is the input of this call."""
    first = node.args[0] if node.args else node.kwargs.get("input")
    if not isinstance(first, fx.Node):
        raise Unsupported(f"{node.name} has no traced input")
    return first


def options(traced: Traced, node: fx.Node, *, defaults: dict[str, Any]) -> dict[str, Any]:
    """Options by name: attributes of a module, or arguments of a call after the input.

    The keys of `defaults`, in order, are the positional arguments of the functional form.
    """
    if node.op == "call_module":
        module = traced.module(node)
        return {name: getattr(module, name, default) for name, default in defaults.items()}
    given = dict(zip(defaults, node.args[1:], strict=False)) | dict(node.kwargs)
    given.pop("input", None)
    odd = sorted(given.keys() - defaults.keys() - {"inplace"})
    if odd or len(node.args) - 1 > len(defaults):
        raise Unsupported(f"{node.name} is called with options we do not know: {', '.join(odd)}")
    if any(isinstance(value, fx.Node) for value in given.values()):
        raise Unsupported(f"{node.name} has options computed from the input")
    return defaults | given


def pair(value: Any) -> tuple[int, int]:
    """An int or a pair of ints as a pair."""
    if isinstance(value, int):
        return (value, value)
    first, second = (value * 2 if len(value) == 1 else value)[:2]
    return (int(first), int(second))


def overwrites(traced: Traced, node: fx.Node) -> bool:
    """Whether the call changes its first input in place."""
    if node.op == "call_module":
        return bool(getattr(traced.module(node), "inplace", False))
    name = str(getattr(node.target, "__name__", node.target))
    in_place = name in IN_PLACE_OPERATORS or (name.endswith("_") and not name.endswith("__"))
    return in_place or bool(node.kwargs.get("inplace", False))
