"""Operations with learnable parameters: where an attacker's parameters start and how far they may go.

An attacker who knows, or guesses, which augmentation a client uses knows what the model really saw: a transformed
picture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from leakscope.operations import smooth

# images [m, c, h, w] in [0, 1], parameters [m, k] → images of the same shape.
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


def _even(name: str, apply: Apply, reach: float, *, size: int = 1) -> Transform:
    return Transform(name, apply, (0.0,) * size, (-reach,) * size, (reach,) * size)


# Reaches are a little above the largest magnitudes of AutoAugment, which published policies draw from.
TRANSFORMS: dict[str, Transform] = {
    item.name: item
    for item in (
        _even("shift", smooth.shift, 0.6, size=2),
        _even("shift-x", smooth.shift_x, 0.6),
        _even("shift-y", smooth.shift_y, 0.6),
        _even("translate-x", smooth.translate_x, 0.6),
        _even("translate-y", smooth.translate_y, 0.6),
        _even("shear-x", smooth.shear_x, 0.4),
        _even("shear-y", smooth.shear_y, 0.4),
        _even("rotate", smooth.rotate, 40.0),
        _even("rotate-grey", smooth.rotate_grey, 40.0),
        _even("zoom", smooth.zoom, 0.6),
        _even("brightness", smooth.brightness, 0.6),
        _even("contrast", smooth.contrast, 0.6),
        _even("colour", smooth.colour, 0.6),
        _even("sharpness", smooth.sharpness, 0.6),
        Transform("flip", smooth.flip, (0.5,), (0.0,), (1.0,), signed=False),
        Transform("invert", smooth.invert, (0.5,), (0.0,), (1.0,), signed=False),
        Transform("solarise", smooth.solarise, (0.6,), (0.0,), (1.0,), signed=False),
        Transform("posterise", smooth.posterise, (6.0,), (4.0,), (8.0,), signed=False),
        Transform("autocontrast", smooth.autocontrast, (), (), (), signed=False),
        Transform("equalise", smooth.equalise, (), (), (), signed=False),
    )
}
