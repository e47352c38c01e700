"""What a server that wants to pass a picture through a network looks for: convolutions, then linear layers, in a chain.

Anything else on the way (a residual, attention, an unknown call) is named in the refusal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from leakscope.errors import UnsuitableError, UsageError
from leakscope.networks import Step, is_normalisation, normalisation_constants, take_apart

# How a layer answers: values above 0 pass unchanged, or all go through a sigmoid.
Response = Literal["linear", "sigmoid"]
PoolKind = Literal["max", "average"]
_RECTIFIERS = (nn.ReLU, nn.LeakyReLU)
_NOTHING = (nn.Flatten, nn.Identity)
# Sides that are tried where nobody says how large a picture is.
_USUAL_SIDES = (32, 28, 224, 64, 8, 16, 24, 48, 96, 112, 128, 160, 192, 256, 299, 384, 448, 512)


@dataclass(frozen=True)
class ConvStage:
    """One convolution with what follows it: normalisation, activation, pooling."""

    name: str
    norm: str | None = None
    response: Response = "linear"
    pool: PoolKind | None = None
    pool_size: int = 1


@dataclass(frozen=True)
class LinearStage:
    """One linear layer with what follows it; `slope` is that of its activation below zero, 1 for none."""

    name: str
    response: Response = "linear"
    slope: float = 1.0
    dropped: bool = False


@dataclass(frozen=True, eq=False)
class Anatomy:
    """A chain of convolutions that ends in linear layers.

    Attributes:
        input_shape: shape of one picture, or of any input where there is no convolution.
        feature_shape: shape of what the first linear layer receives, before it is flattened.
        constants: mean and deviation of the normalisation in front; None where there is none.
        convolutions: from the picture on.
        linear: from the features to the scores.
    """

    input_shape: tuple[int, ...]
    feature_shape: tuple[int, ...]
    constants: tuple[Tensor, Tensor] | None
    convolutions: tuple[ConvStage, ...]
    linear: tuple[LinearStage, ...]


def examine(model: nn.Module, input_shape: tuple[int, ...] | None, *, attack: str) -> Anatomy:
    """The chain of `model`.

    Raises:
        UnsuitableError: it is no such chain; the reason names the layer.
    """
    shape = input_shape or guess_input_shape(model)
    # Active dropout draws numbers while the network is traced.
    with torch.random.fork_rng(devices=[]):
        chain = take_apart(model, shape)
    parts = _Parts(attack)
    for step in chain.steps:
        parts.add(step)
    if chain.reason is not None:
        raise parts.refuse(chain.reason)
    if not parts.linear:
        raise parts.refuse("it has no linear layer at its end")
    features = parts.features or shape
    return Anatomy(shape, features, parts.constants, tuple(parts.convolutions), tuple(parts.linear))


class _Parts:
    """The parts of a network as they come, one step after the other."""

    def __init__(self, attack: str) -> None:
        self.attack = attack
        self.constants: tuple[Tensor, Tensor] | None = None
        self.convolutions: list[ConvStage] = []
        self.linear: list[LinearStage] = []
        self.features: tuple[int, ...] | None = None

    def refuse(self, reason: str) -> UnsuitableError:
        return UnsuitableError(
            f"{self.attack} needs a chain of convolutions that ends in linear layers, as in vgg16, lenet5 or mlp, and "
            f"this network is none: {reason}; use inverting-gradients, or robbing-the-fed, which adds layers of its own"
        )

    def add(self, step: Step) -> None:
        layer = step.layer
        if layer is None:
            raise self.refuse(f"{step.name!r} is a call that is not known here; write it as a layer of torch.nn")
        if step.shared:
            raise self.refuse(f"layer {step.name!r} is used twice")
        if is_normalisation(layer) and not self.convolutions and not self.linear:
            self.constants = normalisation_constants(layer)
        elif isinstance(layer, nn.Conv2d) and not self.linear:
            self._convolve(step, layer)
        elif isinstance(layer, nn.Linear):
            self.linear.append(LinearStage(step.name))
        elif self.linear:
            self._follow_linear(step, layer)
        else:
            self._follow_convolution(step, layer)
        if not self.linear:
            self.features = step.out_shape if len(step.out_shape) == 3 else self.features

    def _convolve(self, step: Step, layer: nn.Conv2d) -> None:
        square = all(len(set(_pair(one))) == 1 for one in (layer.kernel_size, layer.stride, layer.padding))
        if not square or layer.groups != 1 or set(_pair(layer.dilation)) != {1}:
            raise self.refuse(f"convolution {step.name!r} is not square, or has groups or dilation")
        self.convolutions.append(ConvStage(step.name))

    def _follow_convolution(self, step: Step, layer: nn.Module) -> None:
        if isinstance(layer, _NOTHING) or step.in_shape == step.out_shape == _adaptive_size(layer, step):
            return
        if isinstance(layer, nn.modules.dropout._DropoutNd) and not (layer.training and layer.p > 0):
            return
        if not self.convolutions:
            raise self.refuse(f"layer {step.name!r} ({type(layer).__name__}) stands before the first convolution")
        last = self.convolutions[-1]
        if isinstance(layer, nn.BatchNorm2d) and last.norm is None and last.pool is None:
            self.convolutions[-1] = replace(last, norm=step.name)
        elif isinstance(layer, _RECTIFIERS):
            return
        elif isinstance(layer, nn.Sigmoid) and last.pool is None:
            self.convolutions[-1] = replace(last, response="sigmoid")
        elif isinstance(layer, (nn.MaxPool2d, nn.AvgPool2d)) and last.pool is None and _tiles(layer):
            kind: PoolKind = "max" if isinstance(layer, nn.MaxPool2d) else "average"
            self.convolutions[-1] = replace(last, pool=kind, pool_size=_pair(layer.kernel_size)[0])
        else:
            raise self.refuse(f"layer {step.name!r} ({type(layer).__name__}) cannot pass a picture on")

    def _follow_linear(self, step: Step, layer: nn.Module) -> None:
        last = self.linear[-1]
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            self.linear[-1] = replace(last, dropped=last.dropped or (layer.training and layer.p > 0))
        elif isinstance(layer, nn.Sigmoid):
            self.linear[-1] = replace(last, response="sigmoid")
        elif isinstance(layer, _RECTIFIERS):
            self.linear[-1] = replace(last, slope=layer.negative_slope if isinstance(layer, nn.LeakyReLU) else 0.0)
        elif not isinstance(layer, _NOTHING):
            raise self.refuse(f"layer {step.name!r} ({type(layer).__name__}) follows the linear layers")


def _tiles(layer: nn.MaxPool2d | nn.AvgPool2d) -> bool:
    """Whether windows lie side by side: as wide as their step, without padding."""
    kernel, stride = set(_pair(layer.kernel_size)), set(_pair(layer.stride))
    return len(kernel) == 1 and kernel == stride and set(_pair(layer.padding)) == {0} and not layer.ceil_mode


def _adaptive_size(layer: nn.Module, step: Step) -> tuple[int, ...] | None:
    """The shape that adaptive pooling leaves as it was."""
    return step.out_shape if isinstance(layer, (nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)) else None


def _pair(value: object) -> tuple[int, int]:
    """Both sides of a size that torch takes as one number or two."""
    sides = tuple(value) if isinstance(value, Iterable) else (value, value)
    return (int(sides[0]), int(sides[-1])) if all(isinstance(side, int) for side in sides) else (-1, -2)  # type: ignore[arg-type]


def guess_input_shape(model: nn.Module) -> tuple[int, ...]:
    """The shape of one input, found by trying usual sides on a network without storage; for `craft` without a context.

    Raises:
        UsageError: no usual size runs.
    """
    shapes = _plausible_shapes(model)
    state = {name: value.to("meta") for name, value in (*model.named_parameters(), *model.named_buffers())}
    for shape in shapes:
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.func.functional_call(model, state, (torch.empty(2, *shape, device="meta"),))
        except (RuntimeError, ValueError, TypeError, IndexError):
            continue
        return shape
    raise UsageError(
        "craft needs the shape of one input, and no usual size runs through this network; give "
        "context=CraftContext(input_shape=(channels, height, width))"
    )


def _plausible_shapes(model: nn.Module) -> Iterator[tuple[int, ...]]:
    first = next((one for one in model.modules() if isinstance(one, (nn.Conv2d, nn.Linear))), None)
    if isinstance(first, nn.Conv2d):
        yield from ((first.in_channels, side, side) for side in _USUAL_SIDES)
    elif first is not None:
        for channels in (3, 1):
            side = math.isqrt(first.in_features // channels)
            if channels * side * side == first.in_features:
                yield (channels, side, side)
        yield (first.in_features,)
