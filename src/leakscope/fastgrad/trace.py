"""How a network is read: the nodes of its forward pass with their shapes, and the arguments of each call.

The module itself is left untouched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx, nn

from leakscope import networks
from leakscope.errors import UnsuitableError
from leakscope.fastgrad.memory import Scratch

IN_PLACE_OPERATORS = ("iadd", "isub", "imul", "itruediv")


class Unsupported(Exception):
    """This network cannot be compiled; the message says which part of it and why.

    Not an error of the caller: double backward computes the same gradient.
    """


@dataclass(frozen=True)
class Trace:
    """A traced network: its nodes, what each produced for the example, what is constant.

    `shared_names` maps id(parameter) to the name under which its gradient is shared; `scratch`
    is memory for all layers compiled from this trace.
    """

    model: nn.Module
    graph: fx.Graph
    values: dict[fx.Node, Any] = field(repr=False)
    constant: frozenset[fx.Node]
    shared_names: dict[int, str]
    examples: int
    scratch: Scratch = field(repr=False, default_factory=Scratch)

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        """Shape of one example of this value."""
        return tuple(self.values[node].shape[1:])

    def module(self, node: fx.Node) -> nn.Module:
        """The layer a call_module node calls."""
        return self.model.get_submodule(str(node.target))

    def trained_inside(self, node: fx.Node) -> list[str]:
        """Names of the trained parameters that a constant is computed from."""
        found = [name for before in node.all_input_nodes for name in self.trained_inside(before)]
        if node.op == "call_module":
            found += [self.shared_names.get(id(value), "") for value in self.module(node).parameters()]
        elif node.op == "get_attr":
            found.append(self.shared_names.get(id(self.values[node]), ""))
        return [name for name in found if name]


def trace_network(model: nn.Module, example: Tensor) -> Trace:
    """Trace `model` and run it on two copies of the first example.

    Two, so that an axis that is not the batch cannot be mistaken for it.
    """
    twice = example[:1].detach().expand(2, *example.shape[1:]).clone()
    try:
        graph, values = networks.trace(model, twice)
    except UnsuitableError as error:
        raise Unsupported(str(error)) from error
    names = {id(p): name for name, p in model.named_parameters() if p.requires_grad}
    return Trace(model, graph, values, _find_constants(graph), names, len(example))


def _find_constants(graph: fx.Graph) -> frozenset[fx.Node]:
    """Nodes that do not depend on the input."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op not in ("placeholder", "output") and all(arg in found for arg in node.all_input_nodes):
            found.add(node)
    return frozenset(found)


def find_source(node: fx.Node) -> fx.Node:
    """The node whose value is the input of this call."""
    first = node.args[0] if node.args else node.kwargs.get("input")
    if not isinstance(first, fx.Node):
        raise Unsupported(f"{node.name} has no traced input")
    return first


def read_options(trace: Trace, node: fx.Node, *, defaults: dict[str, Any]) -> dict[str, Any]:
    """Options by name: attributes of a module, or arguments of a call after the input.

    The keys of `defaults`, in order, are the positional arguments of the functional form.
    """
    if node.op == "call_module":
        module = trace.module(node)
        return {name: getattr(module, name, default) for name, default in defaults.items()}
    given = dict(zip(defaults, node.args[1:], strict=False)) | dict(node.kwargs)
    given.pop("input", None)
    unknown = sorted(given.keys() - defaults.keys() - {"inplace"})
    if unknown or len(node.args) - 1 > len(defaults):
        raise Unsupported(f"{node.name} is called with options we do not know: {', '.join(unknown)}")
    if any(isinstance(value, fx.Node) for value in given.values()):
        raise Unsupported(f"{node.name} has options computed from the input")
    return defaults | given


def as_pair(value: Any) -> tuple[int, int]:
    """An int or a pair of ints as a pair."""
    if isinstance(value, int):
        return (value, value)
    first, second = (value * 2 if len(value) == 1 else value)[:2]
    return (int(first), int(second))


def overwrites_input(trace: Trace, node: fx.Node) -> bool:
    """Whether the call changes its first input in place."""
    if node.op == "call_module":
        return bool(getattr(trace.module(node), "inplace", False))
    name = str(getattr(node.target, "__name__", node.target))
    in_place = name in IN_PLACE_OPERATORS or (name.endswith("_") and not name.endswith("__"))
    return in_place or bool(node.kwargs.get("inplace", False))
