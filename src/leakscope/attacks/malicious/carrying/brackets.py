"""From carried features back to pixels: bounds below and above every one of them (Eqs. 17-19 of the MKOR paper).

A value that is the maximum of a window is an upper bound of each pixel in it; one minus the maximum of 1 − x is a lower
bound. The windows of different channels overlap, and of all bounds on a pixel the tightest counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from leakscope.attacks.malicious.carrying.routes import CarryPlan

# The release smooths with 5 × 5 weights of a Gaussian of deviation 10: nearly a mean.
SMOOTHING_SIZE, SMOOTHING_DEVIATION = 5, 10.0
# The release keeps sigmoids this far from 0 and 1 before it inverts them.
_EDGE = 3e-8


@dataclass(frozen=True, eq=False)
class Brackets:
    """Bounds [n, colours, rows, columns]; every pixel lies between them, up to rounding, where values are maxima."""

    lower: Tensor
    upper: Tensor

    @property
    def middle(self) -> Tensor:
        """Halfway between the bounds (Eq. 19)."""
        return (self.lower + self.upper) / 2


def invert_response(plan: CarryPlan, features: Tensor, *, beta: float) -> Tensor:
    """Carried values [n, channels, h, w] as they were before activations and `beta`; means are taken for values."""
    values = features
    for route in reversed(plan.routes):
        if route.stage.response == "sigmoid":
            values = values.clamp(_EDGE, 1 - _EDGE).logit()
        values = values / beta
    return values


def bracket(plan: CarryPlan, values: Tensor, *, sides: tuple[int, int]) -> Brackets:
    """Bounds of every pixel from carried values [n, channels in the order of the plan, h, w].

    Where values are means of a window, or single pixels, lower and upper are the same: the value itself, placed on
    the pixel next to the centre of its window.
    """
    colours = 1 + max(one.colour for one in plan.channels)
    if not plan.is_maximum:
        middle = torch.stack([_place(plan, values, colour, sides) for colour in range(colours)], 1)
        return Brackets(middle, middle)
    upper = [_tightest(plan, values, colour, sides, inverted=False) for colour in range(colours)]
    lower = [1 - _tightest(plan, values, colour, sides, inverted=True) for colour in range(colours)]
    return Brackets(torch.stack(lower, 1), torch.stack(upper, 1))


def _tightest(plan: CarryPlan, values: Tensor, colour: int, sides: tuple[int, int], *, inverted: bool) -> Tensor:
    """The least of all maxima whose window covers a pixel, at most 1: [n, rows, columns]."""
    chosen = [
        (place, one) for place, one in enumerate(plan.channels) if (one.colour, one.inverted) == (colour, inverted)
    ]
    rows = _Axis.of(plan, [one.row for _, one in chosen], length=sides[0], count=values.shape[2])
    columns = _Axis.of(plan, [one.column for _, one in chosen], length=sides[1], count=values.shape[3])
    best = values.new_ones(len(values), rows.cells, columns.cells)
    for place, one in chosen:
        down, right = rows.covering[one.row], columns.covering[one.column]
        shown = values[:, place][:, down.clamp_min(0)][:, :, right.clamp_min(0)]
        # What no window of this channel covers stays unbounded by it.
        outside = (down < 0)[:, None] | (right < 0)
        best = torch.minimum(best, shown.masked_fill(outside, 1.0))
    return best[:, rows.cell_of][:, :, columns.cell_of]


@dataclass(frozen=True, eq=False)
class _Axis:
    """One side of the picture, in cells of pixels that the same windows cover.

    Attributes:
        cell_of: the cell of every pixel.
        covering: by a channel's offset, the feature that covers each cell; −1 for none.
    """

    cell_of: Tensor
    covering: dict[int, Tensor]

    @property
    def cells(self) -> int:
        return int(self.cell_of.max()) + 1

    @classmethod
    def of(cls, plan: CarryPlan, offsets: list[int], *, length: int, count: int) -> _Axis:
        distinct = sorted(set(offsets))
        pixels = torch.arange(length)
        found = torch.full((len(distinct), length), -1)
        for place, offset in enumerate(distinct):
            for inside in plan.window:
                feature, rest = (pixels - offset - inside) // plan.step, (pixels - offset - inside) % plan.step
                hit = (rest == 0) & (feature >= 0) & (feature < count)
                found[place, hit] = feature[hit]
        cells, cell_of = found.unique(dim=1, return_inverse=True)
        return cls(cell_of, {offset: cells[place] for place, offset in enumerate(distinct)})


def _place(plan: CarryPlan, values: Tensor, colour: int, sides: tuple[int, int]) -> Tensor:
    """Values on the pixel next to the centre of its window, [n, rows, columns]; pixels without one take the nearest."""
    chosen = [(place, one) for place, one in enumerate(plan.channels) if one.colour == colour]
    picture = values.new_full((len(values), *sides), float("nan"))
    for place, one in chosen:
        rows, down = _centres(plan, one.row, length=sides[0], count=values.shape[2])
        columns, right = _centres(plan, one.column, length=sides[1], count=values.shape[3])
        picture[:, rows[:, None], columns] = values[:, place][:, down][:, :, right]
    return _fill(picture)


def _centres(plan: CarryPlan, offset: int, *, length: int, count: int) -> tuple[Tensor, Tensor]:
    """Pixels along one side that a channel's values are placed on, and which values those are."""
    features = torch.arange(count)
    pixels = features * plan.step + offset + plan.window[len(plan.window) // 2]
    inside = (pixels >= 0) & (pixels < length)
    return pixels[inside], features[inside]


def _fill(picture: Tensor) -> Tensor:
    """Pixels that nothing shows take the value of the nearest row and column that something shows."""
    shown = picture[0].isfinite()
    rows, columns = _nearest(shown.any(1)), _nearest(shown.any(0))
    return picture[:, rows][:, :, columns].nan_to_num(0.5)


def _nearest(shown: Tensor) -> Tensor:
    """For every place the nearest that is shown; itself where nothing is."""
    places = torch.arange(len(shown))
    if not bool(shown.any()):
        return places
    known = places[shown]
    return known[(places[:, None] - known).abs().argmin(1)]


def smooth_picture(images: Tensor) -> Tensor:
    """Images [n, C, H, W] after the release's 5 × 5 filter; edges are repeated."""
    offsets = torch.arange(SMOOTHING_SIZE, dtype=images.dtype, device=images.device) - SMOOTHING_SIZE // 2
    weights = (-0.5 * (offsets / SMOOTHING_DEVIATION).square()).exp()
    weights = weights / weights.sum()
    channels, margin = images.shape[1], SMOOTHING_SIZE // 2
    padded = functional.pad(images, (margin,) * 4, mode="replicate")
    rows = functional.conv2d(padded, weights.reshape(1, 1, -1, 1).expand(channels, 1, -1, 1), groups=channels)
    return functional.conv2d(rows, weights.reshape(1, 1, 1, -1).expand(channels, 1, 1, -1), groups=channels)


def carried_values(plan: CarryPlan, features: Tensor) -> Tensor:
    """The carried channels of features [n, C, h, w], in the order of the plan."""
    return features[:, [one.channel for one in plan.channels]]


def stretch(plan: CarryPlan, values: Tensor) -> Tensor:
    """Values of each colour and sign moved and scaled so that the batch spans 0 to 1, for want of its statistics.

    Batch normalisation leaves brightness and contrast open; all examples of a batch share them.
    """
    stretched = values.clone()
    for kind in sorted({(one.colour, one.inverted) for one in plan.channels}):
        places = [place for place, one in enumerate(plan.channels) if (one.colour, one.inverted) == kind]
        low, high = values[:, places].min(), values[:, places].max()
        stretched[:, places] = (values[:, places] - low) / (high - low).clamp_min(1e-12)
    return stretched
