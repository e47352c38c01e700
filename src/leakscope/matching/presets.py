"""Presets for attacks on pixels: the published optimisers, and leakscope's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from leakscope.errors import UsageError
from leakscope.matching.candidates import Pixels
from leakscope.matching.optimisers import Adam, linear, three_drops
from leakscope.matching.penalties import TotalVariation
from leakscope.matching.steadiness import SteadyLayers

ScheduleName = Literal["accelerated", "paper"]
LayerChoice = Literal["steady", "all"]
_T = TypeVar("_T")

# The deviation of natural pictures is a quarter of their range: rates then mean the same whether or not a network
# normalises. A start with little noise is nearer to any picture than one as loud as a picture.
_OWN_PIXELS = Pixels(begin="normal", normalised=True, spread=0.25, deviation=0.2)
_PUBLISHED_PIXELS = Pixels(begin="normal", normalised=True)


@dataclass(frozen=True)
class Preset:
    """What a schedule's name stands for."""

    optimiser: Adam
    penalty: TotalVariation
    steps: int
    candidate: Pixels


def schedule_preset(
    schedule: ScheduleName,
    *,
    lr: float | None = None,
    tv: float | None = None,
    steps: int | None = None,
    paper_steps: int = 4_800,
    signed: bool = True,
) -> Preset:
    """The preset of this name, changed by what is not None.

    "paper" is Adam at rate 0.1 with three drops and an absolute weight of total variation; `signed` applies to it.
    "accelerated" reaches the same quality in far fewer evaluations: signed Adam with a larger, linearly falling rate
    and a weight relative to the matching gradient. Unless `tv` is given, it fits the number and size of the images.
    """
    fast = Preset(
        # Signs move large dim areas as fast as sharp edges; a high rate covers the distance early, and its fall takes
        # the noise of the signs away.
        Adam(lr=0.4 if lr is None else lr, signed=True, schedule=linear),
        TotalVariation(0.5 if tv is None else tv, relative=True, fitted=tv is None),
        300 if steps is None else steps,
        _OWN_PIXELS,
    )
    published = Preset(
        Adam(lr=0.1 if lr is None else lr, signed=signed, schedule=three_drops),
        TotalVariation(1e-4 if tv is None else tv),
        paper_steps if steps is None else steps,
        _PUBLISHED_PIXELS,
    )
    return by_schedule(schedule, accelerated=fast, paper=published)


def choose_layers(schedule: ScheduleName, *, layers: LayerChoice | None, lr: float | None) -> SteadyLayers | None:
    """What a search compares: by default the steady layers, and all of them with the published optimiser.

    A rate that was given stays as it is.
    """
    if layers not in (None, *get_args(LayerChoice)):
        raise UsageError(f"layers must be 'steady' or 'all', got {layers!r}")
    if (layers or by_schedule(schedule, accelerated="steady", paper="all")) == "all":
        return None
    return SteadyLayers() if lr is None else SteadyLayers(haste=1.0)


def held_preset(*, lr: float | None = None, tv: float | None = None, steps: int | None = None) -> Preset:
    """Unsigned Adam at rate 0.1 throughout, with an absolute total variation.

    What makes AGIC's layer weights pay: they need steps by the values of the gradient and a rate that is held long.
    """
    return Preset(
        Adam(lr=0.1 if lr is None else lr),
        TotalVariation(1e-4 if tv is None else tv),
        1_000 if steps is None else steps,
        _OWN_PIXELS,
    )


def by_schedule(schedule: ScheduleName, *, accelerated: _T, paper: _T) -> _T:
    """The value that belongs to this schedule."""
    if schedule not in ("accelerated", "paper"):
        raise UsageError(f"schedule must be 'accelerated' or 'paper', got {schedule!r}")
    return paper if schedule == "paper" else accelerated
