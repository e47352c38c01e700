"""A network taken apart into the layers it runs through one after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from leakscope.errors import UnsuitableError
from leakscope.networks.freeze import copy_network
from leakscope.networks.layers import is_normalisation

# Functions and methods that do what a layer does.
_AS_LAYER: dict[Any, type[nn.Module]] = {
    **dict.fromkeys((torch.sigmoid, functional.sigmoid, "sigmoid"), nn.Sigmoid),
    **dict.fromkeys((torch.tanh, functional.tanh, "tanh"), nn.Tanh),
    **dict.fromkeys((torch.flatten, torch.reshape, "flatten", "reshape", "view", "contiguous"), nn.Identity),
}


@dataclass(frozen=True, eq=False)
class Step:
    """One layer, or one call of a function, on the way from the input to the output.

    Attributes:
        name: of the layer as `named_modules` has it, or of the call.
        layer: the module, or one that does the same up to the shape of the result; None where there is none.
        received: what it received for two made-up examples.
        returned: what it made of that.
        shared: whether its parameters serve elsewhere in the forward pass, too.
    """

    name: str
    layer: nn.Module | None
    received: Tensor
    returned: Tensor
    shared: bool

    @property
    def in_shape(self) -> tuple[int, ...]:
        """Shape of what it receives for one example."""
        return tuple(self.received.shape[1:])

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of what it returns for one example."""
        return tuple(self.returned.shape[1:])


@dataclass(frozen=True, eq=False)
class LayerChain:
    """The steps from the input on, up to the output or to the first branch or join (`reason`)."""

    steps: tuple[Step, ...]
    reason: str | None = None


def take_apart(model: nn.Module, input_shape: tuple[int, ...]) -> LayerChain:
    """The chain at the beginning of `model`, which is not run in the caller's copy.

    Raises:
        UnsuitableError: the forward pass cannot be traced.
    """
    reference = next(model.parameters(), torch.zeros(()))
    example = torch.full((2, *input_shape), 0.5, device=reference.device, dtype=reference.dtype)
    copied = copy_network(model)
    graph, values = trace(copied, example)
    uses = _uses(copied, graph)
    steps: list[Step] = []
    node = next(one for one in graph.nodes if one.op == "placeholder")
    while True:
        following = [user for user in node.users if not _asks_shape(user)]
        if len(following) != 1:
            reason = f"the output of {node.name!r} is used {len(following)} times (a residual or a branch)"
            return LayerChain(tuple(steps), reason)
        before, node = node, following[0]
        if node.op == "output":
            return LayerChain(tuple(steps))
        if len([one for one in node.all_input_nodes if not _is_number(one)]) != 1:
            return LayerChain(tuple(steps), f"{node.name!r} joins several values (a residual or a computed weight)")
        layer = _layer(copied, node)
        shared = layer is not None and any(uses[id(value)] > 1 for value in layer.parameters())
        name = str(node.target) if node.op == "call_module" else node.name
        steps.append(Step(name, layer, values[before], values[node], shared))


def trace(model: nn.Module, example: Tensor) -> tuple[fx.Graph, dict[fx.Node, Any]]:
    """The calls of a forward pass, down to torch's own layers and to input normalisation, and what each returned.

    Raises:
        UnsuitableError: the network carries hooks, or its forward pass cannot be traced.
    """
    for name, module in model.named_modules():
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
        if any(hooks):
            raise UnsuitableError(f"layer {name or 'root'!r} carries hooks, which a traced network would not call")
    try:
        graph = _trace_calls(model)
        recorder = fx.Interpreter(model, garbage_collect_values=False, graph=graph)
        with torch.no_grad():
            recorder.run(example)
    except Exception as error:  # whatever the caller's forward raises means the same to us
        raise UnsuitableError(f"the forward pass cannot be traced: {type(error).__name__}: {error}") from error
    return graph, dict(recorder.env)


def _trace_calls(model: nn.Module) -> fx.Graph:
    tracer = _Tracer()
    try:
        graph = tracer.trace(model)
    finally:
        # Torch's tracer sits in a cycle of references: what it still holds would live until the collector runs.
        tracer.root, tracer.tensor_attrs, tracer.submodule_paths = nn.Module(), {}, None
    return graph


class _Tracer(fx.Tracer):
    """Stops at torch's own layers and at input normalisation, looks inside everything else."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_normalisation(m) or super().is_leaf_module(m, module_qualified_name)


def _layer(model: nn.Module, node: fx.Node) -> nn.Module | None:
    if node.op == "call_module":
        return model.get_submodule(str(node.target))
    if node.target is functional.leaky_relu:
        slope: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("negative_slope", 0.01)
        return nn.LeakyReLU(float(slope))
    return _AS_LAYER[node.target]() if node.target in _AS_LAYER else None


def _uses(model: nn.Module, graph: fx.Graph) -> Counter[int]:
    """How often each parameter is used in the forward pass."""
    named = dict(model.named_parameters(remove_duplicate=False))
    found: Counter[int] = Counter()
    for node in graph.nodes:
        if node.op == "call_module":
            found.update(id(value) for value in model.get_submodule(str(node.target)).parameters())
        elif node.op == "get_attr" and node.target in named:
            found[id(named[str(node.target)])] += 1
    return found


def _asks_shape(node: fx.Node) -> bool:
    return node.target in ("size", "dim") or (node.target is getattr and node.args[1] == "shape")


def _is_number(node: fx.Node) -> bool:
    """Whether a node computes a size rather than a value."""
    return _asks_shape(node) or (bool(node.all_input_nodes) and all(_is_number(one) for one in node.all_input_nodes))
