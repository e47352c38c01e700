"""From a torch module to a list of graph nodes with shapes, without touching the module."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from leakscope.fastgrad.memory import Scratch
from leakscope.fastgrad.unsupported import Unsupported


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


class _Tracer(fx.Tracer):
    """Stops at torch's own layers and at input normalisation, looks inside everything else."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_normalise(m) or super().is_leaf_module(m, module_qualified_name)


def is_normalise(module: nn.Module) -> bool:
    """Whether this is (x − mean)/std with one constant per channel, as our models begin."""
    buffers = dict(module.named_buffers())
    return type(module).__name__ == "Normalise" and buffers.keys() >= {"mean", "std"} and not list(module.parameters())


def trace(model: nn.Module, example: Tensor) -> Traced:
    """Trace `model` and run it on two copies of the first example.

    Two, so that an axis that is not the batch cannot be mistaken for it.
    """
    _refuse_hooks(model)
    probe = example[:1].detach().expand(2, *example.shape[1:]).clone()
    try:
        graph = _Tracer().trace(model)
        recorder = fx.Interpreter(model, garbage_collect_values=False, graph=graph)
        with torch.no_grad():
            recorder.run(probe)
    except Exception as error:  # whatever the caller's forward raises means the same to us
        raise Unsupported(f"the forward pass cannot be traced: {type(error).__name__}: {error}") from error
    values = dict(recorder.env)
    names = {id(p): name for name, p in model.named_parameters() if p.requires_grad}
    return Traced(model, graph, values, _constants(graph), names, len(example))


def _constants(graph: fx.Graph) -> frozenset[fx.Node]:
    """Nodes that do not depend on the input."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op not in ("placeholder", "output") and all(arg in found for arg in node.all_input_nodes):
            found.add(node)
    return frozenset(found)


def _refuse_hooks(model: nn.Module) -> None:
    for name, module in model.named_modules():
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
        if any(hooks):
            raise Unsupported(f"layer {name or 'root'!r} carries hooks, which a compiled network would not call")
