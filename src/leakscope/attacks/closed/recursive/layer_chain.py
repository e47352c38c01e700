"""Takes a network apart into linear and convolutional layers with what stands between them.

A closed form goes back layer by layer, so the layers must form a chain: each value is used by one
layer only, and everything between two layers can be undone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv2d_input

from leakscope import networks
from leakscope.attacks.closed.recursive.activations import invertible, undo
from leakscope.errors import UnsuitableError
from leakscope.networks import Step, normalisation_constants

_RESHAPING = (nn.Flatten, nn.Unflatten, nn.Identity)
_DROPOUT = nn.modules.dropout._DropoutNd


@dataclass(frozen=True, eq=False)
class LayerBlock:
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
        layer, weight = self.layer, self.weight()
        stride, padding, dilation = layer.stride, layer.padding, layer.dilation
        return self.bias() + functional.conv2d(values[None], weight, None, stride, padding, dilation)[0]

    def pull_back(self, gradient: Tensor) -> Tensor:
        """Aᵀ k: the gradient in the layer's input, from that in its output."""
        if isinstance(self.layer, nn.Linear):
            return self.weight().T @ gradient.reshape(-1)
        return conv2d_input(
            (1, *self.in_shape),
            self.weight(),
            gradient.reshape(1, *self.out_shape),
            stride=self.layer.stride,  # type: ignore[arg-type]
            padding=self.layer.padding,  # type: ignore[arg-type]
            dilation=self.layer.dilation,  # type: ignore[arg-type]
        )[0]


@dataclass(frozen=True, eq=False)
class SolvableChain:
    """The layers from the input on, up to the output or to the first thing that cannot be undone (`reason`)."""

    blocks: tuple[LayerBlock, ...]
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

    blocks: list[LayerBlock] = field(default_factory=list)
    activations: list[nn.Module] = field(default_factory=list)
    entry: tuple[nn.Module, ...] = ()
    constants: tuple[Tensor, Tensor] | None = None

    def add(self, block: LayerBlock) -> None:
        self.close()
        self.blocks.append(block)

    def close(self) -> None:
        """Give the activations met since the last layer to that layer."""
        found, self.activations = tuple(self.activations), []
        if self.blocks:
            last = self.blocks[-1]
            self.blocks[-1] = LayerBlock(last.name, last.layer, last.in_shape, last.out_shape, found)
        else:
            self.entry = found


def take_apart(model: nn.Module, input_shape: tuple[int, ...]) -> SolvableChain:
    """The chain at the beginning of `model`, which is not run in the caller's copy."""
    try:
        found = networks.take_apart(model, input_shape)
    except UnsuitableError as error:
        raise UnsuitableError(
            f"rgap must take the network apart, but {error}; use inverting-gradients or dlg"
        ) from error
    walk = _Walk()
    reasons = (_take(walk, step) for step in found.steps)
    reason = next((one for one in reasons if one is not None), found.reason)
    walk.close()
    return SolvableChain(tuple(walk.blocks), input_shape, walk.entry, walk.constants, reason)


def _take(walk: _Walk, step: Step) -> str | None:
    """Take one step into the walk, or say why it cannot be undone."""
    layer = step.layer
    if isinstance(layer, (nn.Linear, nn.Conv2d)):
        reason = _layer_trouble(layer, step)
        if reason is None:
            walk.add(LayerBlock(step.name, layer, step.in_shape, step.out_shape))
        return reason and f"{step.name!r} {reason}"
    constants = None if layer is None else normalisation_constants(layer)
    if constants is not None and not walk.blocks and not walk.activations:
        if not _normalises(constants, step):
            return f"{step.name!r} holds a mean and a std and does something else with them"
        walk.constants = constants
        return None
    if isinstance(layer, _RESHAPING) or (isinstance(layer, _DROPOUT) and not (layer.training and layer.p)):
        return None
    if layer is not None and invertible(layer):
        walk.activations.append(layer)
        return None
    return f"{step.name!r} cannot be undone" if layer is None else f"{step.name!r} ({layer}) cannot be undone"


def _normalises(constants: tuple[Tensor, Tensor], step: Step) -> bool:
    received = step.received
    mean, std = (part.to(received).reshape(-1, *[1] * (received.ndim - 2)) for part in constants)
    return torch.allclose((received - mean) / std, step.returned, rtol=1e-4, atol=1e-5)


def _layer_trouble(layer: nn.Linear | nn.Conv2d, step: Step) -> str | None:
    if step.shared:
        return "shares its weights with another layer"
    if isinstance(layer, nn.Linear):
        return None if len(step.in_shape) == 1 else f"is applied along an axis of {list(step.in_shape)}"
    if layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        return "must have one group and be padded with a number of zeros"
    return None
