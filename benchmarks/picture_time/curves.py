"""Arithmetic of trajectories: dB at a time, time to a mark, medians in which a failure counts as infinite.

Judged by the truth, for every contestant alike. What an attacker could not know is never used to pick a picture:

- *dB at t seconds*: the length of the run is chosen beforehand, the longest whose expected duration (pace measured on
  the tuning victims) fits into t. Its returned picture counts; if it took longer than t after all, its iterate at t.
  Where no run is expected to fit, the iterate of the shortest one at t.
- *time to a mark*: the first snapshot at the mark in a run of one length, the same for all victims. Of the lengths that
  were run, the one with the lowest median counts, for every contestant alike: the only place where results choose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

# The plain loop's plateau: its best within so many evaluations, less so many dB.
PLATEAU_EVALUATIONS = 120
PLATEAU_LESS = 0.3
# A plateau that is not so many dB above a grey picture is no recovery: a grey start would be there at once.
LEAST_GAIN = 1.0


@dataclass(frozen=True)
class Run:
    """One run as a worker wrote it: snapshots of (processor seconds, dB), the whole and what it returned."""

    length: int
    snapshots: tuple[tuple[float, float], ...]
    seconds: float
    returned: float
    ms_per_evaluation: float
    setup: float
    peak_mb: float
    gradient_norm: float
    waited: float
    grey: float = math.nan


def read_run(result: Mapping[str, Any], length: int) -> Run:
    """Take what is needed from a worker's result."""
    points = result["trajectory"]
    pace = seconds_per_evaluation(points)
    return Run(
        length=length,
        snapshots=tuple((point["cpu"], point["psnr"]) for point in points),
        seconds=result["cpu"],
        returned=result["psnr"],
        ms_per_evaluation=1e3 * pace,
        setup=max(0.0, result["cpu"] - pace * length),
        peak_mb=result["peak_mb"],
        gradient_norm=result["gradient_norm"],
        waited=result["wall"] / result["cpu"],
        grey=result.get("grey", math.nan),
    )


def seconds_per_evaluation(points: Sequence[Mapping[str, float]]) -> float:
    """Processor seconds between first and last snapshot, by evaluation: set-up is left out."""
    first, last = points[0], points[-1]
    count = last["evaluations"] - first["evaluations"]
    return (last["cpu"] - first["cpu"]) / count if count else last["cpu"] / last["evaluations"]


@dataclass(frozen=True)
class Pace:
    """What a run is expected to take, from runs on the tuning victims."""

    setup: float
    evaluation: float

    def expects(self, length: int) -> float:
        """Processor seconds of a run of `length` evaluations."""
        return self.setup + length * self.evaluation

    def fits(self, seconds: float) -> int:
        """How many evaluations fit into `seconds`; 0 for none."""
        return max(0, math.floor((seconds - self.setup) / self.evaluation))


def pace_of(runs: Sequence[Run]) -> Pace:
    """Medians over runs."""
    return Pace(median(run.setup for run in runs), median(run.ms_per_evaluation for run in runs) / 1e3)


def level_at(run: Run, seconds: float) -> float | None:
    """DB of what a run has in hand after `seconds`: its result, or its last iterate so far; None before the first."""
    if run.seconds <= seconds:
        return run.returned
    so_far = [level for at, level in run.snapshots if at <= seconds]
    return so_far[-1] if so_far else None


def choose_length(lengths: Sequence[int], pace: Pace, seconds: float) -> int:
    """The longest run that is expected to fit into `seconds`, else the shortest."""
    fitting = [length for length in lengths if pace.expects(length) <= seconds]
    return max(fitting) if fitting else min(lengths)


def seconds_to(run: Run, mark: float) -> float:
    """Processor seconds until a snapshot is at the mark; the whole run where only its result is; else infinite."""
    whole = run.seconds if run.returned >= mark else math.inf
    return next((at for at, level in run.snapshots if level >= mark), whole)


def plateau(run: Run) -> float:
    """The mark that the plain loop sets: the best it had within 120 evaluations, less 0.3 dB.

    NaN, which nobody reaches, where that is not 1 dB above a grey picture: the victim then counts as never for all.
    """
    if run.length != PLATEAU_EVALUATIONS:
        raise ValueError(f"the plateau is read from a run of {PLATEAU_EVALUATIONS} evaluations, got {run.length}")
    levels = [level for _, level in run.snapshots] + [run.returned]
    # A broken picture is no plateau.
    mark = max((level for level in levels if not math.isnan(level)), default=math.nan) - PLATEAU_LESS
    return mark if mark >= run.grey + LEAST_GAIN else math.nan


@dataclass(frozen=True)
class Reach:
    """Times to a mark: the length of run they come from, and one per victim, infinite where it never came."""

    length: int
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Infinite when half of the victims or more never came there."""
        return median(self.seconds)

    @property
    def reached(self) -> int:
        """How many victims came there."""
        return sum(math.isfinite(value) for value in self.seconds)


def reach(runs: Mapping[int, Sequence[Run]], marks: Sequence[float]) -> Reach:
    """Times to a mark per victim, in runs of the one length whose median is lowest.

    `runs` has one run per victim by length; ties go to the length that more victims reach, then to the shorter.
    """
    tried = [
        Reach(length, tuple(seconds_to(run, mark) for run, mark in zip(own, marks, strict=True)))
        for length, own in runs.items()
    ]
    return min(tried, key=lambda one: (one.median, -one.reached, one.length))


def middle_level(levels: Sequence[float | None]) -> float | None:
    """Median dB; nothing in hand or a broken picture counts as lower than any picture. None when that is the median."""
    kept = [-math.inf if level is None or math.isnan(level) else level for level in levels]
    found = median(kept)
    return found if math.isfinite(found) else None
