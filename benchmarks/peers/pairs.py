"""Two adjacent runs on one victim, and the ratios between them. No torch: the parent stays small.

A worker's peak memory would otherwise start from the parent's, which it inherits on Linux.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

Result = Mapping[str, Any]

# Below this gain over its first iterate an attack has recovered nothing whose time could be compared.
LEAST_GAIN_DB = 1.0
# breaching creeps along a plateau for most of its run; waiting for the last hundredth of a
# decibel would charge it for time in which nothing happens.
PLATEAU_DB = 0.1


def ms_per_evaluation(run: Result, *, clock: str) -> float:
    """Milliseconds per evaluation of the objective between first and last snapshot: without set-up."""
    first, last = run["trajectory"][0], run["trajectory"][-1]
    count = last["evaluations"] - first["evaluations"]
    return 1e3 * (last[clock] - first[clock]) / count if count else math.nan


def seconds_to(run: Result, target: float, *, clock: str) -> float:
    """Seconds from the start until `target` dB is first seen; infinite when it never is.

    A returned image that good, between two snapshots that are not, counts as the whole run.
    """
    whole = run[clock] if run["psnr"] >= target else math.inf
    return next((point[clock] for point in run["trajectory"] if point["psnr"] >= target), whole)


@dataclass(frozen=True)
class Pair:
    """One run of breaching and the run of leakscope beside it, on the same victim."""

    breaching: Result
    leakscope: Result
    clock: str = "wall"

    def __post_init__(self) -> None:
        """Refuse to compare two different problems."""
        theirs, ours = self.breaching["gradient_norm"], self.leakscope["gradient_norm"]
        if not math.isclose(theirs, ours, rel_tol=1e-4):
            raise SystemExit(f"the two sides attack different gradients: norms {theirs:.6g} and {ours:.6g}")

    @property
    def target(self) -> float:
        """PSNR of the image breaching returned."""
        return self.breaching["psnr"]

    @property
    def comparable(self) -> bool:
        """Whether breaching recovered anything at all."""
        return self.target - self.breaching["trajectory"][0]["psnr"] >= LEAST_GAIN_DB

    @property
    def evaluation_ratio(self) -> float:
        """How many times faster one evaluation of leakscope is."""
        return self._ms(self.breaching) / self._ms(self.leakscope)

    @property
    def run_ratio(self) -> float:
        """Time of breaching's whole run over leakscope's time to the same PSNR."""
        return self.breaching[self.clock] / self.ours

    @property
    def reach_ratio(self) -> float:
        """The stricter figure: when each side first came within `PLATEAU_DB` of that PSNR."""
        ours = seconds_to(self.leakscope, self.target - PLATEAU_DB, clock=self.clock)
        return self.theirs / ours

    @property
    def theirs(self) -> float:
        """Seconds until breaching itself first came within `PLATEAU_DB` of the target."""
        return seconds_to(self.breaching, self.target - PLATEAU_DB, clock=self.clock)

    @property
    def ours(self) -> float:
        """Seconds until leakscope first reached the target."""
        return seconds_to(self.leakscope, self.target, clock=self.clock)

    def _ms(self, run: Result) -> float:
        return ms_per_evaluation(run, clock=self.clock)


def middle(pairs: Iterable[Pair], value: Callable[[Pair], float]) -> float:
    """Median of `value` over the pairs that have one."""
    values = [number for number in map(value, pairs) if not math.isnan(number)]
    return median(values) if values else math.nan
