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

# What went into a layer and what came back, of one example, [1, …] each → its gradients by the layer's own names.
Rule = Callable[[Any, Tensor, Tensor], dict[str, Tensor]]


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

    def gradients(self, place: int) -> dict[str, Tensor]:
        """Gradients of one example, by the names the layer gives its parameters."""
        one = slice(place, place + 1)
        return RULES[type(self.layer)](self.layer, self.entered[0][one], self.returned[0][one])


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
        return type(layer) in RULES and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if isinstance(layer, nn.BatchNorm2d):
        return type(layer) in RULES and layer.running_mean is not None
    return type(layer) in RULES


def _of_convolution(layer: nn.Conv2d, entered: Tensor, returned: Tensor) -> dict[str, Tensor]:
    options = (layer.stride, layer.padding, layer.dilation, False, (0, 0), layer.groups)
    # The kernel reads no weight for the gradient in it.
    wanted = (False, True, False)
    weight = torch.ops.aten.convolution_backward(returned, entered, layer.weight, None, *options, wanted)[1]
    return {"weight": weight} if layer.bias is None else {"weight": weight, "bias": returned.sum((0, 2, 3))}


def _of_linear(layer: nn.Linear, entered: Tensor, returned: Tensor) -> dict[str, Tensor]:
    rows, answers = entered.flatten(0, -2), returned.flatten(0, -2)
    return {"weight": answers.t() @ rows} | ({} if layer.bias is None else {"bias": answers.sum(0)})


def _of_norm(layer: nn.BatchNorm2d, entered: Tensor, returned: Tensor) -> dict[str, Tensor]:
    mean, variance = cast(Tensor, layer.running_mean), cast(Tensor, layer.running_var)
    moved = entered - mean.reshape(-1, 1, 1)
    along = (moved * returned).sum((0, 2, 3)) / (variance + layer.eps).sqrt()
    return {"weight": along, "bias": returned.sum((0, 2, 3))}


RULES: dict[type[nn.Module], Rule] = {
    nn.Conv2d: _of_convolution,
    nn.Linear: _of_linear,
    nn.BatchNorm2d: _of_norm,
}
