"""Writes a plan into the convolutions (Eq. 20 of the MKOR paper), and says what it does to the size of values.

Eq. 20 as printed leaves the weights from all other inputs to a carried output as they were, which would mix their
random features into the picture. Here a carried output hears its own wire and, from every other input, nothing
but the noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from leakscope import rng as random
from leakscope.attacks.malicious.anatomy import Anatomy
from leakscope.attacks.malicious.carrying.routes import CarryPlan, ConvRoute
from leakscope.errors import UnsuitableError

# Added behind batch statistics, in their deviations: what a rectifier would otherwise cut off. Pixels of photographs
# lie within three deviations of their mean, a bright dot on black further away on one side.
_LIFT = 6.0


@dataclass(frozen=True)
class FilterStrength:
    """How carried filters look: the tap is `beta`, every other weight of its output is from N(0, `noise`²)."""

    beta: float = 1.0
    noise: float = 0.0


def write_filters(
    model: nn.Module, anatomy: Anatomy, plan: CarryPlan, *, strength: FilterStrength, rng: Generator, attack: str
) -> None:
    """Set the weights of the carried channels; all others stay as they are."""
    with torch.no_grad():
        for number, route in enumerate(plan.routes):
            layer = model.get_submodule(route.stage.name)
            assert isinstance(layer, nn.Conv2d)
            constants = _entry_constants(layer, anatomy) if number == 0 else None
            if route.inverted and layer.bias is None:
                raise UnsuitableError(
                    f"{attack} inverts the picture with the bias of the first convolution, and {route.stage.name!r} "
                    "has none; use class-fishing or inverting-gradients"
                )
            _write_convolution(layer, route, constants=constants, strength=strength, rng=rng)
            if route.stage.norm is not None:
                _write_norm(model.get_submodule(route.stage.norm), route)


def _entry_constants(layer: nn.Conv2d, anatomy: Anatomy) -> tuple[Tensor, Tensor]:
    """Mean and deviation of every colour, so that the first filter takes the normalisation back."""
    mean, std = anatomy.constants or (torch.zeros(1), torch.ones(1))
    shape = (layer.in_channels,)
    return mean.reshape(-1).to(layer.weight).expand(shape), std.reshape(-1).to(layer.weight).expand(shape)


def _write_convolution(
    layer: nn.Conv2d,
    route: ConvRoute,
    *,
    constants: tuple[Tensor, Tensor] | None,
    strength: FilterStrength,
    rng: Generator,
) -> None:
    outputs = torch.tensor([wire.output for wire in route.wires], device=layer.weight.device)
    shape = (len(outputs), *layer.weight.shape[1:])
    layer.weight[outputs] = _noise(shape, strength.noise, rng, layer.weight)
    if layer.bias is not None:
        layer.bias[outputs] = _noise((len(outputs),), strength.noise, rng, layer.bias)
    for wire in route.wires:
        sign = -1.0 if wire.output in route.inverted else 1.0
        mean, std = (0.0, 1.0) if constants is None else (float(part[wire.source]) for part in constants)
        layer.weight[wire.output, wire.source, wire.row, wire.column] = sign * strength.beta * std
        if layer.bias is not None and constants is not None:
            layer.bias[wire.output] += strength.beta * (mean if sign > 0 else 1.0 - mean)


def _noise(shape: tuple[int, ...], size: float, rng: Generator, like: Tensor) -> Tensor:
    return (
        size * random.normal(shape, rng, like=like)
        if size > 0
        else torch.zeros(shape, dtype=like.dtype, device=like.device)
    )


def _write_norm(layer: nn.Module, route: ConvRoute) -> None:
    """Let normalisation pass carried channels on.

    Stored statistics are undone by scale and shift. Batch statistics cannot be: there the shift keeps values above
    zero, and the picture comes back up to its brightness and contrast.
    """
    assert isinstance(layer, nn.BatchNorm2d)
    outputs = torch.tensor([wire.output for wire in route.wires])
    if layer.weight is None:
        raise UnsuitableError(
            f"normalisation {route.stage.norm!r} has no scale and shift, so it cannot be undone; use class-fishing"
        )
    if uses_batch_statistics(layer):
        layer.weight[outputs] = 1.0
        layer.bias[outputs] = _LIFT
        return
    assert layer.running_mean is not None
    assert layer.running_var is not None
    layer.weight[outputs] = (layer.running_var[outputs] + layer.eps).sqrt()
    layer.bias[outputs] = layer.running_mean[outputs]


def uses_batch_statistics(layer: nn.Module) -> bool:
    """Whether a normalising layer takes mean and deviation from the batch that runs through it."""
    assert isinstance(layer, nn.BatchNorm2d)
    return layer.training or layer.running_mean is None
