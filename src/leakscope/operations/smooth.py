"""Operations on pixels in [0, 1] with derivatives in the picture and in their parameters, black outside the picture.

images [m, c, h, w] and parameters [m, k], one row for each example, give images of the same shape. Magnitudes are in
the units people use: fractions of the side, degrees, and 1 + m for the enhancers. Black is 0 in pixels: padding after
normalisation would leave the mean colour. Nothing is rounded to 8 bits, and where an operation is a staircase its
derivative is that of the straight line through it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from leakscope.operations import eight_bit

# What AutoAugment paints behind a rotated picture.
_GREY = 128 / 255


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


def translate_x(images: Tensor, parameters: Tensor) -> Tensor:
    """Move the content left by a fraction of the width, in whole pixels."""
    return shift_x(images, -_whole(parameters, images.shape[-1]))


def translate_y(images: Tensor, parameters: Tensor) -> Tensor:
    """Move the content up by a fraction of the height, in whole pixels."""
    return shift_y(images, -_whole(parameters, images.shape[-2]))


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
    """Invert what is not below the threshold; the derivative is that of an edge soft enough to learn the threshold."""
    threshold = _spread(parameters[:, 0])
    soft = images + torch.sigmoid((images - threshold) * 50) * (1 - 2 * images)
    return _straight_through(soft, torch.where(images < threshold, images, 1 - images))


def autocontrast(images: Tensor, parameters: Tensor) -> Tensor:
    """Stretch every channel to the full range."""
    low, high = images.amin((-2, -1), keepdim=True), images.amax((-2, -1), keepdim=True)
    return (images - low) / (high - low).clamp_min(1e-3)


def posterise(images: Tensor, parameters: Tensor) -> Tensor:
    """Keep so many leading bits of 8; the derivative is that of the identity."""
    steps = 2 ** (8 - _spread(parameters[:, 0]).round())
    return _straight_through(images, (images * 255 / steps + 1e-4).floor() * steps / 255)


def equalise(images: Tensor, parameters: Tensor) -> Tensor:
    """Spread every channel's levels evenly, by how often they occur; the derivative is that of the identity."""
    spread = eight_bit.equalise(eight_bit.quantise(images), parameters)
    return _straight_through(images, spread.to(images) / 255)


def _enhance(images: Tensor, plain: Tensor, parameters: Tensor) -> Tensor:
    return _kept(plain + (1 + _spread(parameters[:, 0])) * (images - plain))


def _kept(images: Tensor) -> Tensor:
    """Clamp to valid pixels, with the derivative of the identity: a saturated pixel must be able to come back."""
    return _straight_through(images, images.clamp(0, 1))


def _straight_through(images: Tensor, found: Tensor) -> Tensor:
    """`found`, with the derivative of `images`."""
    return images + (found - images).detach()


def _whole(fractions: Tensor, side: int) -> Tensor:
    """Fractions of a side as Pillow moves: by whole pixels; the derivative is that of the identity."""
    return _straight_through(fractions, (fractions * side + 0.5).floor() / side)


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    weights = images.new_tensor([0.299, 0.587, 0.114]).reshape(3, 1, 1)
    return (weights * images).sum(1, keepdim=True)


def _spread(value: Tensor) -> Tensor:
    return value.reshape(-1, 1, 1, 1)
