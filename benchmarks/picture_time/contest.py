"""The held-out contest of one case: which runs it takes, and the small file that is kept of them."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from picture_time.cases import Case, Victim
from picture_time.contestants import Contestant, holds_its_rate
from picture_time.curves import (
    PLATEAU_EVALUATIONS,
    Pace,
    Run,
    choose_length,
    level_at,
    plateau,
    reach,
)
from picture_time.running import Job, run_all

BUDGETS = (5.0, 10.0, 20.0, 40.0, 80.0)
MARKS = (15.0, 17.0, 20.0)
ANCHOR = "plain"
# Runs aim below their budget: a victim may be a little slower than those of the tuning.
_MARGIN = 0.95
# Small networks take milliseconds; beyond this many evaluations nothing was seen to change.
MOST_EVALUATIONS = 3_000
FEWEST_EVALUATIONS = 2

Runs = Mapping[int, Sequence[Run]]


@dataclass(frozen=True)
class Entry:
    """A contestant with its tuned settings and pace."""

    contestant: Contestant
    settings: Mapping[str, Any]
    pace: Pace

    def lengths(self, budgets: Sequence[float]) -> list[int]:
        """One run per budget, or the longest alone where the rate is held; the anchor also runs to its plateau."""
        fitting = [min(MOST_EVALUATIONS, self.pace.fits(_MARGIN * budget)) for budget in budgets]
        lengths = {length for length in fitting if length >= FEWEST_EVALUATIONS} or {FEWEST_EVALUATIONS}
        if holds_its_rate(self.settings):
            lengths = {max(lengths)}
        if self.contestant.name == ANCHOR:
            lengths.add(PLATEAU_EVALUATIONS)
        return sorted(lengths)


def read_entry(contestant: Contestant, tuned: Mapping[str, Any]) -> Entry:
    """A contestant as `tuned.json` has it; `tuned` is that of one case."""
    if contestant.name not in tuned:
        raise SystemExit(f"{contestant.name} is not tuned for this case; run --tune first")
    found = tuned[contestant.name]
    return Entry(contestant, found["settings"], Pace(**found["pace"]))


def plan(case: Case, entries: Sequence[Entry], victims: Sequence[Victim], budgets: Sequence[float]) -> list[Job]:
    """All runs, victim by victim; on each the contestants take turns, the shortest runs first."""
    jobs = []
    for victim in victims:
        own = [(entry, length) for entry in entries for length in entry.lengths(budgets)]
        for entry, length in sorted(own, key=lambda one: one[0].pace.expects(one[1])):
            expected = entry.pace.expects(length)
            jobs.append(Job(case, entry.contestant, entry.settings, victim, length, expected))
    return jobs


def hold(
    case: Case, entries: Sequence[Entry], *, folder: Path, victims: int, budgets: Sequence[float]
) -> dict[str, Any]:
    """Run what is missing and return what is kept of the whole."""
    chosen = case.held_out_victims(victims)
    jobs = plan(case, entries, chosen, budgets)
    pairs = zip(jobs, run_all(jobs, folder), strict=True)
    found = {(job.contestant.name, job.length, job.victim): run for job, run in pairs}
    runs: dict[str, Runs] = {
        entry.contestant.name: {
            length: [found[entry.contestant.name, length, victim] for victim in chosen]
            for length in entry.lengths(budgets)
        }
        for entry in entries
    }
    refuse_different_updates(runs)
    return condense(case, entries, runs, chosen, budgets)


def refuse_different_updates(runs: Mapping[str, Runs]) -> None:
    """All sides must have attacked the same update of each victim."""
    every = [own for lengths in runs.values() for own in lengths.values()]
    for of_one_victim in zip(*every, strict=True):
        norms = [run.gradient_norm for run in of_one_victim]
        if not math.isclose(min(norms), max(norms), rel_tol=1e-4):
            raise SystemExit(f"the sides attack different updates: norms from {min(norms):.6g} to {max(norms):.6g}")


def condense(
    case: Case, entries: Sequence[Entry], runs: Mapping[str, Runs], victims: Sequence[Victim], budgets: Sequence[float]
) -> dict[str, Any]:
    """What the table and the figure need, and no more."""
    anchor = runs.get(ANCHOR)
    marks: dict[str, list[float]] = {f"{mark:g}": [mark] * len(victims) for mark in MARKS}
    if anchor is not None:
        marks["plateau"] = [plateau(run) for run in anchor[PLATEAU_EVALUATIONS]]
    everything = [run for lengths in runs.values() for own in lengths.values() for run in own]
    return {
        "case": case.name,
        "measured": date.today().isoformat(),
        "machine": _processor(),
        "waited": round(max(run.waited for run in everything), 2),
        "budgets": list(budgets),
        "victims": [{"test images": victim.images, "weights seed": victim.weights} for victim in victims],
        "plateau": [_finite(mark) for mark in marks.get("plateau", ())],
        "grey": [_finite(run.grey) for run in anchor[PLATEAU_EVALUATIONS]] if anchor is not None else [],
        "contestants": {
            entry.contestant.name: condense_one(entry, runs[entry.contestant.name], marks, budgets) for entry in entries
        },
    }


def condense_one(
    entry: Entry, runs: Runs, marks: Mapping[str, Sequence[float]], budgets: Sequence[float]
) -> dict[str, Any]:
    """Levels at every budget and times to every mark, one per victim; None for nothing yet and for never."""
    longest = runs[max(runs)]
    chosen = {budget: runs[choose_length(list(runs), entry.pace, budget)] for budget in budgets}
    times = {name: reach(runs, own) for name, own in marks.items()}
    return {
        "settings": dict(entry.settings),
        "lengths": sorted(runs),
        "ms per evaluation": [round(run.ms_per_evaluation, 1) for run in longest],
        "peak MB": [round(run.peak_mb) for run in longest],
        "dB": {f"{budget:g}": [_finite(level_at(run, budget)) for run in own] for budget, own in chosen.items()},
        "seconds": {
            name: {"length": one.length, "victims": [_finite(value) for value in one.seconds]}
            for name, one in times.items()
        },
        "ends": {str(length): [_finite(run.returned) for run in own] for length, own in runs.items()},
    }


def _finite(value: float | None) -> float | None:
    """Rounded; JSON has no infinity and no NaN."""
    return round(value, 2) if value is not None and math.isfinite(value) else None


def _processor() -> str:
    """The processor's name, as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
