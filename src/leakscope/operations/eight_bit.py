"""Operations on grey levels, to the level what Pillow makes of an 8-bit picture.

Every function takes levels, uint8 [n, c, h, w] on the CPU, and one amount per picture, float64 [n]. Pillow truncates
where one would round, and counts in 32-bit floats, 64-bit floats or fixed point depending on the operation; so do
these.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Operation = Callable[[Tensor, Tensor], Tensor]

# Weights of red, green and blue in a grey level, in 65536ths.
_GREY_WEIGHTS = (19595, 38470, 7471)
# What AutoAugment leaves where a turned picture does not reach: it pastes the picture, transparent there, on this grey.
_BEHIND = 128


def quantise(images: Tensor) -> Tensor:
    """The nearest levels of pixels in [0, 1]."""
    return (images.detach().cpu().double().clamp(0, 1) * 255).round().to(torch.uint8)


def brightness(levels: Tensor, amounts: Tensor) -> Tensor:
    """Blend with black."""
    return _blend(torch.zeros_like(levels), levels, amounts)


def contrast(levels: Tensor, amounts: Tensor) -> Tensor:
    """Blend with the mean of the grey picture, rounded."""
    mean = (_grey(levels).double().mean((-3, -2, -1), keepdim=True) + 0.5).floor()
    return _blend(mean.to(torch.uint8).expand_as(levels), levels, amounts)


def colour(levels: Tensor, amounts: Tensor) -> Tensor:
    """Blend with the grey picture."""
    return _blend(_grey(levels).expand_as(levels), levels, amounts)


def sharpness(levels: Tensor, amounts: Tensor) -> Tensor:
    """Blend with the picture smoothed by weights 1 and 5 in the middle, of 13; the border stays."""
    smooth = levels.clone()
    if min(levels.shape[-2:]) >= 3:
        kernel = torch.ones(levels.shape[1], 1, 3, 3)
        kernel[:, :, 1, 1] = 5
        total = functional.conv2d(levels.float(), kernel, groups=levels.shape[1])
        # Sums of whole numbers are exact; thirteenths are never halfway between two levels.
        smooth[..., 1:-1, 1:-1] = ((2 * total + 13) / 26).floor().to(torch.uint8)
    return _blend(smooth, levels, amounts)


def translate_x(levels: Tensor, amounts: Tensor) -> Tensor:
    """What is at column x was at x + m·width, to the nearest column; black where there is none."""
    return _take(levels, _offsets(levels.shape[-1], amounts), dim=-1)


def translate_y(levels: Tensor, amounts: Tensor) -> Tensor:
    """What is at row y was at y + m·height, to the nearest row; black where there is none."""
    return _take(levels, _offsets(levels.shape[-2], amounts), dim=-2)


def shear_y(levels: Tensor, amounts: Tensor) -> Tensor:
    """What is at (x, y) was at (x, y + m x), by cubic interpolation along the column; black where there is none."""
    height, width = levels.shape[-2:]
    rows, columns = (torch.arange(size, dtype=torch.float64) + 0.5 for size in (height, width))
    where = rows[:, None] + _spread(amounts)[:, 0] * columns
    inside = (where >= 0) & (where < height)
    first = (where - 0.5).floor()
    taps = [levels.double().gather(-2, _index(first + shift, height, levels)) for shift in (-1, 0, 1, 2)]
    value = _cubic(taps, (where - 0.5 - first)[:, None])
    return torch.where(inside[:, None], value.clamp(0, 255), torch.zeros_like(value)).to(torch.uint8)


def rotate(levels: Tensor, amounts: Tensor) -> Tensor:
    """Turn counter-clockwise by degrees about the centre, to the nearest pixel; grey where there is no picture."""
    return torch.stack([_rotate_one(one, float(angle)) for one, angle in zip(levels, amounts, strict=True)])


def invert(levels: Tensor, amounts: Tensor) -> Tensor:
    """255 − x."""
    return 255 - levels


def solarise(levels: Tensor, amounts: Tensor) -> Tensor:
    """Invert what is not below the threshold, in levels."""
    return torch.where(levels.double() < _spread(amounts), levels, 255 - levels)


def posterise(levels: Tensor, amounts: Tensor) -> Tensor:
    """Keep the given number of leading bits."""
    steps = _spread(2 ** (8 - amounts)).long()
    return (levels.long() // steps * steps).to(torch.uint8)


def autocontrast(levels: Tensor, amounts: Tensor) -> Tensor:
    """Stretch every channel to the full range."""
    low, high = (bound.double() for bound in (levels.amin((-2, -1)), levels.amax((-2, -1))))
    # A number over a tensor would be its reciprocal times the number: one rounding more than Pillow's.
    scale = torch.full_like(low, 255.0) / (high - low).clamp_min(1)
    grades = torch.arange(256, dtype=torch.float64)
    table = (grades * scale[..., None] - (low * scale)[..., None]).trunc().clamp(0, 255)
    return _look_up(levels, torch.where((high > low)[..., None], table, grades))


def equalise(levels: Tensor, amounts: Tensor) -> Tensor:
    """Spread every channel's levels evenly, by how often they occur."""
    flat = levels.flatten(2).long()
    counts = torch.zeros(*flat.shape[:2], 256, dtype=torch.long).scatter_add_(2, flat, torch.ones_like(flat))
    top = counts.gather(2, flat.amax(2, keepdim=True))
    step = (flat.shape[2] - top) // 255
    before = counts.cumsum(2) - counts
    table = ((step // 2 + before) // step.clamp_min(1)).clamp_max(255)
    # Too few pixels to spread, or one level alone: left as it is.
    return _look_up(levels, torch.where(step > 0, table, torch.arange(256)))


def _blend(plain: Tensor, levels: Tensor, amounts: Tensor) -> Tensor:
    """plain + (1 + m)·(levels − plain) in 32 bits, cut off to whole levels."""
    base = plain.float()
    factor = _spread(1 + amounts).float()
    return (base + factor * (levels.float() - base)).clamp(0, 255).to(torch.uint8)


def _grey(levels: Tensor) -> Tensor:
    if levels.shape[1] != 3:
        return levels.double().mean(1, keepdim=True).round().to(torch.uint8)
    weights = torch.tensor(_GREY_WEIGHTS).reshape(3, 1, 1)
    return ((weights * levels.long()).sum(1, keepdim=True) + 32768).div(65536, rounding_mode="floor").to(torch.uint8)


def _offsets(side: int, amounts: Tensor) -> Tensor:
    """The column or row that every place is taken from, [n, side]."""
    return (torch.arange(side) + 0.5 + (amounts * side)[:, None]).floor().long()


def _take(levels: Tensor, places: Tensor, *, dim: int) -> Tensor:
    side = levels.shape[dim]
    shape = (len(levels), 1, 1, side) if dim == -1 else (len(levels), 1, side, 1)
    found = levels.gather(dim, places.clamp(0, side - 1).reshape(shape).expand_as(levels))
    return found * ((places >= 0) & (places < side)).reshape(shape)


def _index(places: Tensor, side: int, like: Tensor) -> Tensor:
    return places.clamp(0, side - 1).long()[:, None].expand_as(like)


def _cubic(taps: list[Tensor], at: Tensor) -> Tensor:
    """Pillow's cubic through four neighbours, `at` between the second and the third."""
    one, two, three, four = taps
    slope, bend, twist = three - one, 2 * (one - two) + three - four, two - one - three + four
    return two + at * (slope + at * (bend + at * twist))


def _rotate_one(levels: Tensor, degrees: float) -> Tensor:
    height, width = levels.shape[-2:]
    cos, sin = (round(value, 15) for value in (math.cos(-math.radians(degrees)), math.sin(-math.radians(degrees))))
    middle_x, middle_y = width / 2, height / 2
    x = _fixed_point((cos, sin, middle_x - cos * middle_x - sin * middle_y), height, width)
    y = _fixed_point((-sin, cos, middle_y + sin * middle_x - cos * middle_y), height, width)
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    found = levels[:, y.clamp(0, height - 1), x.clamp(0, width - 1)]
    return torch.where(inside, found, torch.full_like(found, _BEHIND))


def _fixed_point(row: tuple[float, float, float], height: int, width: int) -> Tensor:
    """Where every pixel is taken from along one axis, [h, w], counted in 65536ths as Pillow counts."""
    across, down, start = row
    start += 0.5 * across + 0.5 * down
    across, down, start = (math.floor(value * 65536 + 0.5) for value in (across, down, start))
    return (start + down * torch.arange(height)[:, None] + across * torch.arange(width)) >> 16


def _look_up(levels: Tensor, table: Tensor) -> Tensor:
    return table.to(torch.uint8).gather(2, levels.flatten(2).long()).reshape(levels.shape)


def _spread(value: Tensor) -> Tensor:
    return value.reshape(-1, 1, 1, 1)


OPERATIONS: dict[str, Operation] = {
    "translate-x": translate_x,
    "translate-y": translate_y,
    "shear-y": shear_y,
    "rotate": rotate,
    "brightness": brightness,
    "contrast": contrast,
    "colour": colour,
    "sharpness": sharpness,
    "invert": invert,
    "solarise": solarise,
    "posterise": posterise,
    "autocontrast": autocontrast,
    "equalise": equalise,
}
