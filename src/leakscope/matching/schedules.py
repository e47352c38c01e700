"""How the rate changes along a run: progress in [0, 1) → factor."""

from __future__ import annotations

from collections.abc import Callable

Schedule = Callable[[int, int], float]


def constant(step: int, steps: int) -> float:
    """The same rate throughout."""
    return 1.0


def three_drops(step: int, steps: int) -> float:
    """×0.1 after 3/8, 5/8 and 7/8 of the run, at the rounded places of Inverting Gradients."""
    places = (int(steps // 2.667), int(steps // 1.6), int(steps // 1.142))
    return 0.1 ** sum(step >= place for place in places)


def linear(step: int, steps: int) -> float:
    """From 1 down to 0."""
    return 1.0 - step / steps
