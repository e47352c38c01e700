"""Takes a network apart into linear and convolutional layers with what stands between them.

A closed form goes back layer by layer, so the layers must form a chain: each value is used by one
layer only, and everything between two layers can be undone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.grad import conv2d_input

from leakscope.attacks.recursive.activations import invertible, undo
from leakscope.errors import UnsuitableError
from leakscope.fastgrad.trace import Trace, Unsupported, trace_network
from leakscope.networks import copy_network, normalisation_constants

_POINTWISE: dict[Any, type[nn.Module]] = {
    torch.sigmoid: nn.Sigmoid, functional.sigmoid: nn.Sigmoid, "sigmoid": nn.Sigmoid,
    torch.tanh: nn.Tanh, functional.tanh: nn.Tanh, "tanh": nn.Tanh,
}  # fmt: skip
_RESHAPES: tuple[Any, ...] = (torch.flatten, torch.reshape, "flatten", "reshape", "view", "contiguous")
_RESHAPING = (nn.Flatten, nn.Unflatten, nn.Identity)
_DROPOUT = nn.modules.dropout._DropoutNd


@dataclass(frozen=True, eq=False)
class Block:
    """One layer z = A x + b, and the activations that follow it; shapes are of one example."""

    name: str
    layer: nn.Linear | nn.Conv2d
    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    activations: tuple[nn.Module, ...] = ()

    def weight(self) -> Tensor:
        """The weights in double precision."""
        return self.layer.weight.detach().double()

    def bias(self) -> Tensor:
        """The bias in double precision, zero where the layer has none, shaped to be added to an output."""
        shape = (-1, *[1] * (len(self.out_shape) - 1))
        if self.layer.bias is None:
            return self.weight().new_zeros(self.out_shape[0]).reshape(shape)
        return self.layer.bias.detach().double().reshape(shape)

    def forward(self, values: Tensor) -> Tensor:
        """A x + b of one example, before the activations."""
        values = values.reshape(self.in_shape)
        if isinstance(self.layer, nn.Linear):
            return self.weight() @ values + self.bias()
        return self.bias() + functional.conv2d(
            values[None], self.weight(),
            stride=self.layer.stride, padding=self.layer.padding, dilation=self.layer.dilation,
        )[0]  # fmt: skip

    def pull_back(self, gradient: Tensor) -> Tensor:
        """Aᵀ k: the gradient in the layer's input, from that in its output."""
        if isinstance(self.layer, nn.Linear):
            return self.weight().T @ gradient.reshape(-1)
        return conv2d_input(
            (1, *self.in_shape), self.weight(), gradient.reshape(1, *self.out_shape),
            stride=self.layer.stride, padding=self.layer.padding, dilation=self.layer.dilation,  # type: ignore[arg-type]
        )[0]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Chain:
    """The layers from the input on, up to the output or to the first thing that cannot be undone (`reason`)."""

    blocks: tuple[Block, ...]
    input_shape: tuple[int, ...]
    entry: tuple[nn.Module, ...] = ()
    constants: tuple[Tensor, Tensor] | None = None
    reason: str | None = None

    def to_inputs(self, values: Tensor) -> Tensor:
        """Model inputs from what the first layer received."""
        values = undo(self.entry, values).reshape(self.input_shape)
        if self.constants is None:
            return values
        mean, std = (part.double().reshape(-1, *[1] * (values.ndim - 1)) for part in self.constants)
        return mean + std * values


@dataclass
class _Walk:
    """What has been collected so far, on the way from the input to the output."""

    blocks: list[Block] = field(default_factory=list)
    activations: list[nn.Module] = field(default_factory=list)
    entry: tuple[nn.Module, ...] = ()
    constants: tuple[Tensor, Tensor] | None = None

    def add(self, block: Block) -> None:
        self.close()
        self.blocks.append(block)

    def close(self) -> None:
        """Give the activations met since the last layer to that layer."""
        found, self.activations = tuple(self.activations), []
        if self.blocks:
            last = self.blocks[-1]
            self.blocks[-1] = Block(last.name, last.layer, last.in_shape, last.out_shape, found)
        else:
            self.entry = found


def take_apart(model: nn.Module, input_shape: tuple[int, ...]) -> Chain:
    """The chain at the beginning of `model`, which is not run in the caller's copy."""
    reference = next(model.parameters(), torch.zeros(()))
    example = torch.full((2, *input_shape), 0.5, device=reference.device, dtype=reference.dtype)
    try:
        traced = trace_network(copy_network(model), example)
    except Unsupported as error:
        raise UnsuitableError(
            f"rgap must take the network apart, but {error}; use inverting-gradients or dlg"
        ) from error
    walk = _Walk()
    uses = _uses(traced.model, traced.graph)
    node = next(one for one in traced.graph.nodes if one.op == "placeholder")
    reason: str | None = None
    while reason is None:
        following = [user for user in node.users if not _asks_shape(user)]
        if len(following) != 1:
            reason = f"the output of {node.name!r} is used {len(following)} times (a residual or a branch)"
        elif following[0].op == "output":
            break
        else:
            node, before = following[0], node
            reason = _step(walk, traced, before, node, uses)
    walk.close()
    return Chain(tuple(walk.blocks), input_shape, walk.entry, walk.constants, reason)


def _step(walk: _Walk, traced: Trace, before: fx.Node, node: fx.Node, uses: Counter[int]) -> str | None:
    """Take one node into the walk, or say why it cannot be undone."""
    if len([one for one in node.all_input_nodes if not _is_number(one)]) != 1:
        return f"{node.name!r} joins several values (a residual or a computed weight)"
    if node.op != "call_module":
        return _function(walk, node)
    module = traced.module(node)
    if isinstance(module, (nn.Linear, nn.Conv2d)):
        reason = _layer_trouble(module, traced.shape(before), uses)
        if reason is None:
            walk.add(Block(str(node.target), module, traced.shape(before), traced.shape(node)))
        return reason and f"{node.target!r} {reason}"
    constants = normalisation_constants(module)
    if constants is not None and not walk.blocks and not walk.activations:
        if not _normalises(constants, traced.values[before], traced.values[node]):
            return f"{node.target!r} holds a mean and a std and does something else with them"
        walk.constants = constants
        return None
    if isinstance(module, _RESHAPING) or (isinstance(module, _DROPOUT) and not module.training):
        return None
    if invertible(module):
        walk.activations.append(module)
        return None
    return f"{node.target!r} ({module}) cannot be undone"


def _normalises(constants: tuple[Tensor, Tensor], received: Tensor, returned: Tensor) -> bool:
    mean, std = (part.to(received).reshape(-1, *[1] * (received.ndim - 2)) for part in constants)
    return torch.allclose((received - mean) / std, returned, rtol=1e-4, atol=1e-5)


def _function(walk: _Walk, node: fx.Node) -> str | None:
    if node.target in _RESHAPES:
        return None
    if node.target is functional.leaky_relu:
        slope = node.args[1] if len(node.args) > 1 else node.kwargs.get("negative_slope", 0.01)
        activation: nn.Module = nn.LeakyReLU(float(slope))  # type: ignore[arg-type]
    elif node.target in _POINTWISE:
        activation = _POINTWISE[node.target]()
    else:
        return f"{node.name!r} cannot be undone"
    if not invertible(activation):
        return f"{node.name!r} cannot be undone"
    walk.activations.append(activation)
    return None


def _layer_trouble(layer: nn.Linear | nn.Conv2d, in_shape: tuple[int, ...], uses: Counter[int]) -> str | None:
    if uses[id(layer.weight)] > 1:
        return "shares its weights with another layer"
    if isinstance(layer, nn.Linear):
        return None if len(in_shape) == 1 else f"is applied along an axis of {list(in_shape)}"
    if layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        return "must have one group and be padded with a number of zeros"
    return None


def _uses(model: nn.Module, graph: fx.Graph) -> Counter[int]:
    """How often each parameter is used in the forward pass."""
    found: Counter[int] = Counter()
    for node in graph.nodes:
        if node.op == "call_module":
            found.update(id(value) for value in model.get_submodule(str(node.target)).parameters())
        elif node.op == "get_attr":
            path, _, name = str(node.target).rpartition(".")
            found[id(getattr(model.get_submodule(path), name, None))] += 1
    return found


def _asks_shape(node: fx.Node) -> bool:
    return node.target in ("size", "dim") or (node.target is getattr and node.args[1] == "shape")


def _is_number(node: fx.Node) -> bool:
    """Whether a node computes a size rather than a value."""
    return _asks_shape(node) or (bool(node.all_input_nodes) and all(_is_number(one) for one in node.all_input_nodes))
