"""How the rate of an optimiser falls, and how long a run with it must be.

Schedules are values, not functions: an attack that holds one has the same repr in every process.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from leakscope.networks import NetworkKind

_WARM_UP = 50
# The least steps by kind of network: dense, convolutional, deep. A rate that falls to zero at once settles wherever it
# is, so its end looks like one however short the run was; measured on one photograph, docs/explanation has the table.
_FALLS_AT_ONCE = (50, 100, 200)
# Steps of 0.1 that do not shrink before 3/8 of the run: 1/48, 1/12 and 1/6 of the 4,800 that were published.
_FALLS_IN_DROPS = (100, 400, 800)
# A rate that is held comes as close as its size allows, and needs long for it.
_HELD = (100, 300, 500)


class Schedule(Protocol):
    """The factor of the rate at each step."""

    def __call__(self, step: int, steps: int) -> float:
        """Return the factor of step `step` of `steps`."""
        ...

    def least_steps(self, kind: NetworkKind) -> int:
        """Steps below which a run of this schedule on such a network has hardly begun."""
        ...


@dataclass(frozen=True)
class Constant:
    """The same rate throughout."""

    def __call__(self, step: int, steps: int) -> float:
        """Return 1."""
        return 1.0

    def least_steps(self, kind: NetworkKind) -> int:
        """By the kind of network."""
        return kind.choose(*_HELD)


@dataclass(frozen=True)
class ThreeDrops:
    """×0.1 after 3/8, 5/8 and 7/8 of the run, at the rounded places of Inverting Gradients."""

    def __call__(self, step: int, steps: int) -> float:
        """Return 0.1 to the number of drops so far."""
        places = (int(steps // 2.667), int(steps // 1.6), int(steps // 1.142))
        return 0.1 ** sum(step >= place for place in places)

    def least_steps(self, kind: NetworkKind) -> int:
        """By the kind of network."""
        return kind.choose(*_FALLS_IN_DROPS)


@dataclass(frozen=True)
class Linear:
    """From 1 down to 0."""

    def __call__(self, step: int, steps: int) -> float:
        """Return the share of the run that is left."""
        return 1.0 - step / steps

    def least_steps(self, kind: NetworkKind) -> int:
        """By the kind of network."""
        return kind.choose(*_FALLS_AT_ONCE)


@dataclass(frozen=True)
class FallingLate:
    """The full rate for the first half of the run, then down to 0 in a straight line."""

    def __call__(self, step: int, steps: int) -> float:
        """Return the factor of the rate."""
        return min(1.0, 2 * (1 - step / steps))

    def least_steps(self, kind: NetworkKind) -> int:
        """By the kind of network."""
        return kind.choose(*_HELD)


@dataclass(frozen=True)
class WarmCosine:
    """From 0 to 1 in 50 steps, or a tenth of a shorter run; then down to 0 along half a cosine."""

    def __call__(self, step: int, steps: int) -> float:
        """Return the factor of the rate."""
        warm = min(_WARM_UP, steps // 10)
        if step < warm:
            return (step + 1) / (warm + 1)
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))

    def least_steps(self, kind: NetworkKind) -> int:
        """By the kind of network."""
        return kind.choose(*_HELD)


constant, three_drops, linear = Constant(), ThreeDrops(), Linear()
falling_late, warm_cosine = FallingLate(), WarmCosine()
