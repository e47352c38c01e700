"""Grades A–F: how much of one private image an attacker got.

Two measures each give a level 0–5: the PSNR gained over the best of what is reached without the update, and
SSIM. The image's level is their mean, rounded up, because an error towards "safe" is the
expensive one; but only an image whose PSNR alone earns F can be one. An image no closer than what is reached
without the update is A whatever its SSIM: flat pictures resemble any flat picture.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Grade:
    """One letter: what it means, and where it starts on both measures."""

    letter: str
    meaning: str
    headline: str
    gain_db: float
    ssim: float


GRADES: tuple[Grade, ...] = (
    Grade(
        "A",
        "no better than without the update",
        "Updates give away no more than is reached without them",
        -math.inf,
        -math.inf,
    ),
    Grade("B", "faint hints of colour or brightness", "Updates give away faint hints of private images", 1.5, 0.15),
    Grade("C", "coarse shapes, not recognisable", "Updates give away coarse shapes of private images", 3.0, 0.30),
    Grade("D", "recognisable", "Updates give away recognisable private images", 5.0, 0.45),
    Grade("E", "clearly visible", "Updates give away clear pictures of private data", 9.0, 0.65),
    Grade("F", "near copy", "Updates give away near copies of private images", 15.0, 0.85),
)
UNKNOWN = "?"
# Level from which a person can tell what is in the picture: grade D.
RECOGNISABLE = 3
# Level F, which the gain in PSNR must reach by itself.
NEAR_COPY = 5
NO_GAIN_DB = 1.0
# Low on purpose: without a measured baseline an image must not look safer than it is.
ASSUMED_BASELINE_DB = 10.0

_GAIN_STEPS = [grade.gain_db for grade in GRADES[1:]]
_SSIM_STEPS = [grade.ssim for grade in GRADES[1:]]


def level_example(psnr: float | None, ssim: float | None, *, baseline_psnr: float | None = None) -> int | None:
    """Return the level 0 (A) to 5 (F) of one image, None when its PSNR is not a number."""
    if psnr is None or math.isnan(psnr):
        return None
    gain = psnr - _baseline(baseline_psnr)
    if gain < NO_GAIN_DB:
        return 0
    by_gain = bisect_right(_GAIN_STEPS, gain)
    if ssim is None or math.isnan(ssim):
        return by_gain
    level = math.ceil((by_gain + bisect_right(_SSIM_STEPS, ssim)) / 2)
    # Structure alone makes no copy: small pictures can be alike in SSIM and far apart in pixels.
    return level if by_gain == NEAR_COPY else min(level, NEAR_COPY - 1)


def badness(psnr: float, ssim: float | None, *, baseline_psnr: float | None) -> tuple[int, float, float, float]:
    """Sort key of one image, the larger the more was given away: level, gain over the best null, PSNR, SSIM.

    This is the only order by which a "worst" image is chosen. The level comes first because it is what the grade
    says; a higher PSNR on a picture that anyone could guess is not worse.
    """
    level = level_example(psnr, ssim, baseline_psnr=baseline_psnr) or 0
    return level, psnr - _baseline(baseline_psnr), psnr, 0.0 if ssim is None or math.isnan(ssim) else ssim


def find_worst(
    psnr: Sequence[float], *, ssim: Sequence[float] | None = None, baseline: Sequence[float] | None = None
) -> int | None:
    """Place of the worst image by `badness`; None where no PSNR is a number."""
    known = [index for index, value in enumerate(psnr) if not math.isnan(value)]
    return max(
        known,
        key=lambda index: badness(
            psnr[index],
            None if ssim is None else ssim[index],
            baseline_psnr=None if baseline is None else baseline[index],
        ),
        default=None,
    )


def grade_example(psnr: float | None, ssim: float | None, baseline_psnr: float | None = None) -> str:
    """Return the letter of one image, '?' when its PSNR is not a number.

    Example:
        >>> grade_example(34.1, 0.95, 12.0)
        'F'
        >>> grade_example(12.3, 0.40, 12.0)
        'A'
    """
    return letter(level_example(psnr, ssim, baseline_psnr=baseline_psnr))


def letter(level: int | None) -> str:
    """Return the letter of a level, '?' for None."""
    return UNKNOWN if level is None else GRADES[level].letter


def mark(grade: str) -> str:
    """CSS class of a letter; anything else looks unknown."""
    return f"g-{grade.lower()}" if grade in tuple("ABCDEF") else "g-unknown"


def _baseline(value: float | None) -> float:
    return ASSUMED_BASELINE_DB if value is None or math.isnan(value) else value
