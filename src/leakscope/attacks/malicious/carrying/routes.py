"""Which channel of which convolution carries what of the picture (the plan behind Eqs. 14-16 of the MKOR paper).

A channel shows one colour, or one minus that colour, at rows i·S + r + q and columns j·S + c + q of the picture, where
S is the step of the grid, (r, c) the channel's own offset, and q runs over the window that poolings have joined. A
convolution whose output is thinned out afterwards, by its stride or by a pooling, can split every channel into one for
each direction, so that what one of them leaves out another one shows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Generator, nn

from leakscope.attacks.malicious.anatomy import Anatomy, ConvStage
from leakscope.errors import UnsuitableError


@dataclass(frozen=True)
class CarriedChannel:
    """One channel: which colour it shows, whether inverted, and from where on."""

    channel: int
    colour: int
    inverted: bool = False
    row: int = 0
    column: int = 0


@dataclass(frozen=True)
class Wire:
    """A filter with one tap: output channel, input channel, and the place of the tap in the kernel."""

    output: int
    source: int
    row: int
    column: int


@dataclass(frozen=True)
class ConvRoute:
    """The wires of one convolution; `output` and `source` of the first are colours where it receives the picture."""

    stage: ConvStage
    wires: tuple[Wire, ...]
    inverted: frozenset[int] = frozenset()


@dataclass(frozen=True)
class CarryPlan:
    """How a picture goes through the convolutions.

    Attributes:
        routes: one for every convolution.
        channels: what the last convolution's channels show, in the order of the release.
        step: rows of the picture from one row of the features to the next.
        window: rows that one value shows, relative to its first.
    """

    routes: tuple[ConvRoute, ...]
    channels: tuple[CarriedChannel, ...]
    step: int = 1
    window: tuple[int, ...] = (0,)

    @property
    def is_exact(self) -> bool:
        """Whether every value shows one pixel."""
        return len(self.window) == 1

    @property
    def is_maximum(self) -> bool:
        """Whether values are maxima over their window; else they are means."""
        return any(route.stage.pool == "max" for route in self.routes)


def plan_carrying(model: nn.Module, anatomy: Anatomy, *, attack: str, rng: Generator | None = None) -> CarryPlan:
    """Lay the wires; `rng` chooses which channels are used, without it they are the first ones."""
    stages = anatomy.convolutions
    kinds = {stage.pool for stage in stages if stage.pool}
    responses = {stage.response for stage in stages}
    if len(kinds) > 1 or len(responses) > 1 or ("max" in kinds and "sigmoid" in responses):
        raise UnsuitableError(
            f"{attack} reads maxima behind rectifiers, or means behind either activation, and this network mixes max "
            "and average pooling or sigmoids and max pooling; use class-fishing or inverting-gradients"
        )
    colours = anatomy.input_shape[0] if stages or len(anatomy.input_shape) == 3 else 1
    carried = [CarriedChannel(colour, colour) for colour in range(colours)]
    # Maxima of 1 − x are minima: both are needed to bracket a pixel.
    signs = (False, True) if "max" in kinds else (False,)
    splits = _choose_splits(model, stages, base=colours * len(signs), attack=attack)
    plan = CarryPlan((), tuple(carried))
    for number, (stage, split) in enumerate(zip(stages, splits, strict=True)):
        is_backward = split > 1 and stage.pool == "average" and not any(one > 1 for one in splits[:number])
        plan = _extend(
            model, plan, stage, split=split, signs=signs if number == 0 else (False,), rng=rng, is_backward=is_backward
        )
    return plan


def _choose_splits(model: nn.Module, stages: tuple[ConvStage, ...], *, base: int, attack: str) -> list[int]:
    """Directions a side for every convolution: strided ones first, then pooled ones, later ones before earlier ones."""
    layers = [_convolution(model, stage) for stage in stages]
    widths = [layer.out_channels for layer in layers]
    narrow = [(width, stage.name) for width, stage in zip(widths, stages, strict=True) if width < base]
    if narrow:
        raise UnsuitableError(
            f"{attack} needs {base} channels in every convolution to carry the colours, and {narrow[0][1]!r} has "
            f"{narrow[0][0]}; use class-fishing or inverting-gradients"
        )
    splits = [1] * len(stages)
    strides = [int(layer.stride[0]) for layer in layers]
    wanted = [(number, strides[number]) for number in reversed(range(len(stages))) if strides[number] > 1]
    wanted += [(number, stages[number].pool_size) for number in reversed(range(len(stages))) if stages[number].pool]
    for number, sides in wanted:
        trial = [*splits[:number], splits[number] * sides, *splits[number + 1 :]]
        if _fits(trial, widths, base) and _reach(layers[number]) >= trial[number]:
            splits = trial
    return splits


def _fits(splits: list[int], widths: list[int], base: int) -> bool:
    count = base
    for split, width in zip(splits, widths, strict=True):
        count *= split * split
        if count > width:
            return False
    return True


def _reach(layer: nn.Conv2d) -> int:
    """How many neighbouring taps there are from the centre of the kernel on."""
    size = int(layer.kernel_size[0])
    return size - size // 2


def _extend(
    model: nn.Module,
    plan: CarryPlan,
    stage: ConvStage,
    *,
    split: int,
    signs: tuple[bool, ...],
    rng: Generator | None,
    is_backward: bool,
) -> CarryPlan:
    """The plan behind one more convolution."""
    layer = _convolution(model, stage)
    centre, padding, stride = int(layer.kernel_size[0]) // 2, int(layer.padding[0]), int(layer.stride[0])  # type: ignore[arg-type]
    steps = range(0, -split, -1) if is_backward else range(split)
    # In blocks: first all channels unmoved, then all to the right, below, below to the right.
    made = [
        (one, sign, centre + down, centre + right)
        for down, right in product(steps, steps)
        for sign in signs
        for one in plan.channels
    ]
    places = _places(layer.out_channels, len(made), rng)
    wires, channels = [], []
    for place, (one, sign, row, column) in zip(places, made, strict=True):
        wires.append(Wire(place, one.channel, row, column))
        moved = replace(one, channel=place, inverted=one.inverted or sign)
        offset = {"row": one.row + (row - padding) * plan.step, "column": one.column + (column - padding) * plan.step}
        channels.append(replace(moved, **offset))
    inverted = frozenset(wire.output for wire, (_, sign, _, _) in zip(wires, made, strict=True) if sign)
    step = plan.step * stride
    window = tuple(sorted(first + step * more for first in plan.window for more in range(stage.pool_size)))
    return CarryPlan(
        (*plan.routes, ConvRoute(stage, tuple(wires), inverted)), tuple(channels), step * stage.pool_size, window
    )


def _places(width: int, count: int, rng: Generator | None) -> list[int]:
    return list(range(count)) if rng is None else torch.randperm(width, generator=rng)[:count].tolist()


def _convolution(model: nn.Module, stage: ConvStage) -> nn.Conv2d:
    layer = model.get_submodule(stage.name)
    assert isinstance(layer, nn.Conv2d)
    return layer
