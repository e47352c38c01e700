"""Image transformations with learnable parameters, in pixel space, black outside the picture.

An attacker who knows, or guesses, which augmentation a client uses knows what the model really saw: a
transformed picture. Each transformation here is differentiable in the picture and in its parameters, one
set of parameters per example. Magnitudes are in the units people use: fractions of the side, degrees, and
1 + m for the enhancers. Black is 0 in pixels: padding after normalisation would leave the mean colour.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

# What AutoAugment paints behind a rotated picture.
_GREY = 128 / 255

# images [m, C, H, W] in [0, 1], parameters [m, k] → images of the same shape.
Apply = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Transform:
    """One operation: how it acts, where its parameters start, and how far they may go."""

    name: str
    # Named by `name`: a function's repr is an address.
    apply: Apply = field(repr=False)
    start: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    # Enhancers and shifts come with a random sign; a threshold does not.
    signed: bool = True


def _resample(images: Tensor, matrix: Tensor) -> Tensor:
    """Sample `images` at output → input coordinates `matrix` [m, 2, 3], black outside."""
    grid = functional.affine_grid(matrix, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _matrix(like: Tensor, **entries: Tensor) -> Tensor:
    """The identity with some entries replaced: `xx xy xt yx yy yt`, each [m]."""
    count = len(next(iter(entries.values())))
    zero, one = like.new_zeros(count), like.new_ones(count)
    fixed = {"xx": one, "xy": zero, "xt": zero, "yx": zero, "yy": one, "yt": zero, **entries}
    return torch.stack([fixed[name] for name in ("xx", "xy", "xt", "yx", "yy", "yt")], dim=1).reshape(-1, 2, 3)


def shift(images: Tensor, parameters: Tensor) -> Tensor:
    """Move the content right and down by fractions (x, y) of the sides."""
    return _resample(images, _matrix(images, xt=-2 * parameters[:, 0], yt=-2 * parameters[:, 1]))


def shift_x(images: Tensor, parameters: Tensor) -> Tensor:
    """Move the content right by a fraction of the width."""
    return _resample(images, _matrix(images, xt=-2 * parameters[:, 0]))


def shift_y(images: Tensor, parameters: Tensor) -> Tensor:
    """Move the content down by a fraction of the height."""
    return _resample(images, _matrix(images, yt=-2 * parameters[:, 0]))


def shear_x(images: Tensor, parameters: Tensor) -> Tensor:
    """Shear along the rows about the upper left corner: what is at (x, y) was at (x + m y, y), in pixels."""
    # Coordinates run from −1 to 1 over either side, so that y pixels below the corner are (v + 1) H / 2.
    slope = parameters[:, 0] * (images.shape[-2] / images.shape[-1])
    return _resample(images, _matrix(images, xy=slope, xt=slope))


def shear_y(images: Tensor, parameters: Tensor) -> Tensor:
    """Shear along the columns about the upper left corner: what is at (x, y) was at (x, y + m x), in pixels."""
    slope = parameters[:, 0] * (images.shape[-1] / images.shape[-2])
    return _resample(images, _matrix(images, yx=slope, yt=slope))


def rotate(images: Tensor, parameters: Tensor) -> Tensor:
    """Rotate about the centre by an angle in degrees, counter-clockwise."""
    angle = parameters[:, 0] * (math.pi / 180)
    ratio = images.shape[-2] / images.shape[-1]
    return _resample(
        images,
        _matrix(
            images,
            xx=angle.cos(),
            xy=-angle.sin() * ratio,
            yx=angle.sin() / ratio,
            yy=angle.cos(),
        ),
    )


def rotate_grey(images: Tensor, parameters: Tensor) -> Tensor:
    """Rotate as `rotate` does, and leave the grey of AutoAugment, not black, where no picture is."""
    return rotate(images - _GREY, parameters) + _GREY


def zoom(images: Tensor, parameters: Tensor) -> Tensor:
    """Crop the centre, or shrink into black, by the factor 1 + m; with a shift, any crop."""
    size = 1 / (1 + parameters[:, 0])
    return _resample(images, _matrix(images, xx=size, yy=size))


def flip(images: Tensor, parameters: Tensor) -> Tensor:
    """Mirror left and right; between 0 and 1 a mixture of both hypotheses."""
    weight = _spread(parameters[:, 0])
    return (1 - weight) * images + weight * images.flip(-1)


def brightness(images: Tensor, parameters: Tensor) -> Tensor:
    """Multiply by 1 + m."""
    return _enhance(images, torch.zeros_like(images), parameters)


def contrast(images: Tensor, parameters: Tensor) -> Tensor:
    """Stretch by 1 + m about the mean of the grey picture."""
    mean = _grey(images).mean((-3, -2, -1), keepdim=True)
    return _enhance(images, mean, parameters)


def colour(images: Tensor, parameters: Tensor) -> Tensor:
    """Stretch by 1 + m about the grey picture."""
    return _enhance(images, _grey(images), parameters)


def sharpness(images: Tensor, parameters: Tensor) -> Tensor:
    """Stretch by 1 + m about the picture smoothed with weights 1 and 5 in the middle; the border stays."""
    channels = images.shape[1]
    kernel = images.new_ones(channels, 1, 3, 3)
    kernel[:, :, 1, 1] = 5
    inner = functional.conv2d(images, kernel / 13, groups=channels)
    smooth = torch.cat([images[..., :1, 1:-1], inner, images[..., -1:, 1:-1]], dim=-2)
    smooth = torch.cat([images[..., :1], smooth, images[..., -1:]], dim=-1)
    return _enhance(images, smooth, parameters)


def invert(images: Tensor, parameters: Tensor) -> Tensor:
    """1 − x; between 0 and 1 a mixture of both hypotheses."""
    weight = _spread(parameters[:, 0])
    return (1 - weight) * images + weight * (1 - images)


def solarise(images: Tensor, parameters: Tensor) -> Tensor:
    """Invert what is above the threshold, with an edge soft enough to learn the threshold."""
    above = torch.sigmoid((images - _spread(parameters[:, 0])) * 50)
    return images + above * (1 - 2 * images)


def autocontrast(images: Tensor, parameters: Tensor) -> Tensor:
    """Stretch every channel to the full range."""
    low, high = images.amin((-2, -1), keepdim=True), images.amax((-2, -1), keepdim=True)
    return (images - low) / (high - low).clamp_min(1e-3)


def _enhance(images: Tensor, plain: Tensor, parameters: Tensor) -> Tensor:
    return _kept(plain + (1 + _spread(parameters[:, 0])) * (images - plain))


def _kept(images: Tensor) -> Tensor:
    """Clamp to valid pixels, with the derivative of the identity: a saturated pixel must be able to come back."""
    return images + (images.clamp(0, 1) - images).detach()


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    weights = images.new_tensor([0.299, 0.587, 0.114]).reshape(3, 1, 1)
    return (weights * images).sum(1, keepdim=True)


def _spread(value: Tensor) -> Tensor:
    return value.reshape(-1, 1, 1, 1)


def _even(name: str, apply: Apply, reach: float, *, size: int = 1) -> Transform:
    return Transform(name, apply, (0.0,) * size, (-reach,) * size, (reach,) * size)


# Reaches are a little above the largest magnitudes of AutoAugment, which published policies draw from.
TRANSFORMS: dict[str, Transform] = {
    item.name: item
    for item in (
        _even("shift", shift, 0.6, size=2),
        _even("shift-x", shift_x, 0.6),
        _even("shift-y", shift_y, 0.6),
        _even("shear-x", shear_x, 0.4),
        _even("shear-y", shear_y, 0.4),
        _even("rotate", rotate, 40.0),
        _even("rotate-grey", rotate_grey, 40.0),
        _even("zoom", zoom, 0.6),
        _even("brightness", brightness, 0.6),
        _even("contrast", contrast, 0.6),
        _even("colour", colour, 0.6),
        _even("sharpness", sharpness, 0.6),
        Transform("flip", flip, (0.5,), (0.0,), (1.0,), signed=False),
        Transform("invert", invert, (0.5,), (0.0,), (1.0,), signed=False),
        Transform("solarise", solarise, (0.6,), (0.0,), (1.0,), signed=False),
        Transform("autocontrast", autocontrast, (), (), (), signed=False),
    )
}
