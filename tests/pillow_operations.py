"""What Pillow makes of a picture under an operation of the library: the reference of its tests and of a benchmark."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps

from leakscope.operations.library import LIBRARY, Entry

ENHANCERS = {
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "colour": ImageEnhance.Color,
    "sharpness": ImageEnhance.Sharpness,
}
ENTRIES = [(entry, sign) for entry in dict.fromkeys(LIBRARY) for sign in ((1, -1) if entry.signed else (1,))]


def pillow(image: Image.Image, entry: Entry, sign: int) -> Image.Image:
    """What the published pipeline does with a picture; grey ones have one number where colours have three."""
    amount, name = entry.amount * sign, entry.name
    black = 0 if image.mode == "L" else (0, 0, 0)
    width, height = image.size
    affine = {
        "translate-x": (1, 0, amount * width, 0, 1, 0),
        "translate-y": (1, 0, 0, 0, 1, amount * height),
        "shear-y": (1, 0, 0, amount, 1, 0),
    }
    if name in affine:
        method = Image.Resampling.BICUBIC if name == "shear-y" else Image.Resampling.NEAREST
        return image.transform(image.size, Image.Transform.AFFINE, affine[name], method, fillcolor=black)
    if name in ENHANCERS:
        return ENHANCERS[name](image).enhance(1 + amount)
    if name == "rotate":
        turned = image.convert("RGBA").rotate(amount)
        return Image.composite(turned, Image.new("RGBA", turned.size, (128,) * 4), turned).convert(image.mode)
    plain = {
        "invert": ImageOps.invert,
        "equalise": ImageOps.equalize,
        "autocontrast": ImageOps.autocontrast,
        "posterise": lambda one: ImageOps.posterize(one, int(amount)),
        "solarise": lambda one: ImageOps.solarize(one, amount),
    }
    return plain[name](image)


def by_pillow(levels: torch.Tensor, entry: Entry, sign: int) -> torch.Tensor:
    """The same for many pictures as levels [n, c, h, w]."""
    found = []
    for one in levels.permute(0, 2, 3, 1).numpy():
        image = np.asarray(pillow(Image.fromarray(one[..., 0] if one.shape[2] == 1 else one), entry, sign))
        found.append(torch.from_numpy(image.copy()).reshape(one.shape))
    return torch.stack(found).permute(0, 3, 1, 2)
