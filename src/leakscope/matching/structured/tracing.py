"""From a torch module to a list of graph nodes with shapes, without touching the module."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx, nn

from leakscope import networks
from leakscope.errors import UnsuitableError
from leakscope.matching.structured.scratch import Scratch
from leakscope.matching.structured.unsupported import Unsupported


@dataclass(frozen=True)
class Traced:
    """A traced network: its nodes, what each produced for the example, what is constant."""

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


def trace(model: nn.Module, example: Tensor) -> Traced:
    """Trace `model` and run it on two copies of the first example.

    Two, so that an axis that is not the batch cannot be mistaken for it.
    """
    probe = example[:1].detach().expand(2, *example.shape[1:]).clone()
    try:
        graph, values = networks.trace(model, probe)
    except UnsuitableError as error:
        raise Unsupported(str(error)) from error
    names = {id(p): name for name, p in model.named_parameters() if p.requires_grad}
    return Traced(model, graph, values, _constants(graph), names, len(example))


def _constants(graph: fx.Graph) -> frozenset[fx.Node]:
    """Nodes that do not depend on the input."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op not in ("placeholder", "output") and all(arg in found for arg in node.all_input_nodes):
            found.add(node)
    return frozenset(found)
