"""Time left, from the durations of the cells that are done."""

from __future__ import annotations

from collections.abc import Iterable

# A grid is ordered, so the next cell resembles the last ones more than the first ones.
_NEWEST = 0.2


class Estimate:
    """Seconds per unit of cell weight, as an exponentially weighted mean."""

    def __init__(self, workers: int) -> None:
        """Estimate for `workers` processes at work."""
        self._workers = workers
        self._rate: float | None = None

    def add(self, seconds: float, *, weight: float) -> None:
        """Learn from a finished cell."""
        rate = seconds / weight
        self._rate = rate if self._rate is None else (1 - _NEWEST) * self._rate + _NEWEST * rate

    def left(self, *, waiting: Iterable[float], running: Iterable[tuple[float, float]]) -> float | None:
        """Seconds until the end, None before the first cell is done.

        Args:
            waiting: weights of the cells that have not started.
            running: weight and elapsed seconds of those that have.
        """
        if self._rate is None:
            return None
        rate = self._rate
        rest = [max(0.0, rate * weight - elapsed) for weight, elapsed in running]
        total = sum(rest) + rate * sum(waiting)
        # However many workers there are, the longest running cell must end.
        return max([total / self._workers, *rest])
