"""How the rate changes along a run: progress in [0, 1) → factor.

Values, not functions: an attack that holds one has the same repr in every process.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

_WARM_UP = 50


class Schedule(Protocol):
    """The factor of the rate at each step."""

    def __call__(self, step: int, steps: int) -> float:
        """Return the factor of step `step` of `steps`."""
        ...


@dataclass(frozen=True)
class Constant:
    """The same rate throughout."""

    def __call__(self, step: int, steps: int) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True)
class ThreeDrops:
    """×0.1 after 3/8, 5/8 and 7/8 of the run, at the rounded places of Inverting Gradients."""

    def __call__(self, step: int, steps: int) -> float:
        """Return 0.1 to the number of drops so far."""
        places = (int(steps // 2.667), int(steps // 1.6), int(steps // 1.142))
        return 0.1 ** sum(step >= place for place in places)


@dataclass(frozen=True)
class Linear:
    """From 1 down to 0."""

    def __call__(self, step: int, steps: int) -> float:
        """Return the share of the run that is left."""
        return 1.0 - step / steps


@dataclass(frozen=True)
class FallingLate:
    """The full rate for the first half of the run, then down to 0 in a straight line."""

    def __call__(self, step: int, steps: int) -> float:
        """Return the factor of the rate."""
        return min(1.0, 2 * (1 - step / steps))


@dataclass(frozen=True)
class WarmCosine:
    """From 0 to 1 in 50 steps, or a tenth of a shorter run; then down to 0 along half a cosine."""

    def __call__(self, step: int, steps: int) -> float:
        """Return the factor of the rate."""
        warm = min(_WARM_UP, steps // 10)
        if step < warm:
            return (step + 1) / (warm + 1)
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


constant, three_drops, linear = Constant(), ThreeDrops(), Linear()
falling_late, warm_cosine = FallingLate(), WarmCosine()
