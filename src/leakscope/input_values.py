"""What the values of inputs are: the range they are in, and the constants that normalise them. Needs no torch."""

from __future__ import annotations

import math

from leakscope.errors import UsageError, suggest

# Mean and deviation by channel. Fashion-MNIST carries MNIST's: the studies of gradient leakage use these for both.
CONSTANTS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "cifar10": ((0.49147, 0.48226, 0.44677), (0.24703, 0.24349, 0.26159)),
    "cifar100": ((0.50716, 0.48669, 0.44120), (0.26733, 0.25644, 0.27615)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "mnist": ((0.1307,), (0.3081,)),
    "fashion-mnist": ((0.1307,), (0.3081,)),
    # To [−1, 1], as recognisers of words take pictures.
    "words-plain": ((0.5,), (0.5,)),
    "words-scene": ((0.5,), (0.5,)),
    "iiit5k": ((0.5,), (0.5,)),
}


def find_constants(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation that are known by the name of a data set."""
    if name not in CONSTANTS:
        raise UsageError(f"no normalisation constants are known for {name!r}.{suggest(name, CONSTANTS)}")
    return CONSTANTS[name]


def read_ranges(text: str) -> list[tuple[float, float]] | None:
    """Low and high that `--bounds` names, one pair for all or one for each column; None for "none"."""
    if text.strip().lower() == "none":
        return None
    return [_read_pair(part, text) for part in text.split(";")]


def _read_pair(part: str, text: str) -> tuple[float, float]:
    try:
        low, high = (float(number) for number in part.split(","))
    except ValueError:
        raise UsageError(
            f"--bounds must be 'none', two numbers as in '-1,1', or two for each column as in '18,90;0,1', got {text!r}"
        ) from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UsageError(f"--bounds must be two finite numbers, the lower first, got {text!r}")
    return low, high
