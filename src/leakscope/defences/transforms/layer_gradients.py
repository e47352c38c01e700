"""Gradients of single examples in the weights of a layer, from what went in and what came back.

Convolutions, linear layers and batch normalisation in evaluation mode: what the networks of a search are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

# The layer, what went in and what came back, [n, …] each → gradients of single examples in its vectors, [n, size].
VectorRule = Callable[[Any, Tensor, Tensor], dict[str, Tensor]]
# The same of one example → the gradient in its weight.
WeightRule = Callable[[Any, Tensor, Tensor], Tensor]


@dataclass
class Passage:
    """One batch through one layer: what went in, and the gradient in what came out."""

    layer: nn.Module
    entered: list[Tensor] = field(default_factory=list)
    returned: list[Tensor] = field(default_factory=list)

    @property
    def once(self) -> bool:
        """Whether the batch went through once and came back."""
        return len(self.entered) == len(self.returned) == 1

    @property
    def has_weight(self) -> bool:
        """Whether the layer has a weight besides vectors."""
        return type(self.layer) in WEIGHTS

    @torch.no_grad()
    def vectors(self) -> dict[str, Tensor]:
        """Gradients of all examples in biases and norms, [n, size], by the layer's own names."""
        return VECTORS[type(self.layer)](self.layer, self.entered[0], self.returned[0])

    @torch.no_grad()
    def weight(self, place: int) -> Tensor:
        """The gradient of one example in the weight, flat; of all examples together it would fill memory."""
        one = slice(place, place + 1)
        return WEIGHTS[type(self.layer)](self.layer, self.entered[0][one], self.returned[0][one]).flatten()


def find_layers(model: nn.Module) -> dict[str, nn.Module] | None:
    """The layers that own the parameters, by name; None where one has no rule, or two share a parameter."""
    layers = {name: layer for name, layer in model.named_modules() if [*layer.parameters(recurse=False)]}
    owned = [id(value) for layer in layers.values() for value in layer.parameters(recurse=False)]
    return layers if len(owned) == len(set(owned)) and all(_has_rule(layer) for layer in layers.values()) else None


@contextmanager
def record(layers: dict[str, nn.Module]) -> Iterator[dict[str, Passage]]:
    """Note what passes through layers in the block; the hooks are gone afterwards."""
    passages = {name: Passage(layer) for name, layer in layers.items()}
    with ExitStack() as stack:
        for passage in passages.values():
            stack.callback(passage.layer.register_forward_hook(_noting(passage)).remove)
        yield passages


def _noting(passage: Passage) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
    def note(_: nn.Module, given: tuple[Any, ...], result: Any) -> None:
        passage.entered.append(cast(Tensor, given[0]).detach())
        cast(Tensor, result).register_hook(passage.returned.append)

    return note


def _has_rule(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d):
        return type(layer) in VECTORS and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if isinstance(layer, nn.BatchNorm2d):
        return type(layer) in VECTORS and layer.running_mean is not None
    return type(layer) in VECTORS


def _convolution_weight(layer: nn.Conv2d, entered: Tensor, returned: Tensor) -> Tensor:
    options = (layer.stride, layer.padding, layer.dilation, False, (0, 0), layer.groups)
    # The kernel reads no weight for the gradient in it.
    wanted = (False, True, False)
    return torch.ops.aten.convolution_backward(returned, entered, layer.weight, None, *options, wanted)[1]


def _convolution_vectors(layer: nn.Conv2d, _: Tensor, returned: Tensor) -> dict[str, Tensor]:
    return {} if layer.bias is None else {"bias": returned.sum((2, 3))}


def _linear_weight(_: nn.Linear, entered: Tensor, returned: Tensor) -> Tensor:
    return returned.flatten(0, -2).t() @ entered.flatten(0, -2)


def _linear_vectors(layer: nn.Linear, _: Tensor, returned: Tensor) -> dict[str, Tensor]:
    return {} if layer.bias is None else {"bias": returned.reshape(len(returned), -1, layer.out_features).sum(1)}


def _norm_vectors(layer: nn.BatchNorm2d, entered: Tensor, returned: Tensor) -> dict[str, Tensor]:
    mean, variance = cast(Tensor, layer.running_mean), cast(Tensor, layer.running_var)
    moved = entered - mean.reshape(-1, 1, 1)
    along = (moved * returned).sum((2, 3)) / (variance + layer.eps).sqrt()
    return {"weight": along, "bias": returned.sum((2, 3))}


VECTORS: dict[type[nn.Module], VectorRule] = {
    nn.Conv2d: _convolution_vectors,
    nn.Linear: _linear_vectors,
    nn.BatchNorm2d: _norm_vectors,
}
WEIGHTS: dict[type[nn.Module], WeightRule] = {nn.Conv2d: _convolution_weight, nn.Linear: _linear_weight}
