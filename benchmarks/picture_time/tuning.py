"""Settings chosen on the tuning victims, one option after another, by mean dB over victims and lengths of run.

A full grid would cost hundreds of runs a case. Options are tuned in the order of what they were seen to matter, and
the first once more at the end; runs are kept, so that no setting is run twice. A value at the end of its grid is said
to be there, because the best may lie beyond.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from picture_time.cases import Case
from picture_time.contestants import Contestant, Settings, fingerprint
from picture_time.curves import Run, pace_of
from picture_time.running import Job, run_all

LENGTHS = (20, 80)
Try = Callable[[Settings], Sequence[Run]]


@dataclass(frozen=True)
class Tuned:
    """What tuning found, and every setting that it tried with its mean dB and those of the runs."""

    settings: dict[str, Any]
    pace: dict[str, float]
    at_the_end_of_its_grid: list[str]
    tried: list[dict[str, Any]]


def tune(contestant: Contestant, case: Case, *, folder: Path, victims: int, lengths: Sequence[int]) -> Tuned:
    """Choose the contestant's settings for this case."""
    chosen, grids = case.tuning_victims(victims), contestant.order_of_tuning(case)
    counter, most = itertools.count(1), count_settings(grids)

    def run(settings: Settings) -> Sequence[Run]:
        print(f"{case.name} {contestant.name}, setting {next(counter)} of at most {most}: {settings}", file=sys.stderr)
        jobs = [
            Job(case, contestant, settings, victim, length, expected=0.3 * case.size * length)
            for victim in chosen
            for length in lengths
        ]
        return run_all(jobs, folder)

    return choose(contestant.settings_before_tuning(case), grids, run)


def count_settings(grids: Sequence[tuple[str, tuple[Any, ...]]]) -> int:
    """How many settings tuning can try at most: the first, and for each option those that it does not have yet."""
    return 1 + sum(len(values) - 1 for _, values in grids)


def choose(start: Settings, grids: Sequence[tuple[str, tuple[Any, ...]]], run: Try) -> Tuned:
    """Go through the options in turn, keeping the value with the highest mean dB; of equals the present one stays."""
    seen: dict[str, tuple[Settings, Sequence[Run]]] = {}

    def score(settings: Settings) -> float:
        key = fingerprint(settings)
        if key not in seen:
            seen[key] = (settings, run(settings))
        return mean_level(seen[key][1])

    best = dict(start)
    score(best)
    for name, values in grids:
        others = [{**best, name: value} for value in values if value != best[name]]
        best = max([best, *others], key=score)
    runs = seen[fingerprint(best)][1]
    tried = [
        {"settings": dict(settings), "mean": round(mean_level(own), 2), "dB": [round(one.returned, 1) for one in own]}
        for settings, own in seen.values()
    ]
    return Tuned(best, _rounded(asdict(pace_of(runs))), at_the_end(best, grids), tried)


def mean_level(runs: Sequence[Run]) -> float:
    """Mean dB; a broken picture is worth nothing, and must not be left out."""
    return fmean(0.0 if math.isnan(run.returned) else run.returned for run in runs)


def at_the_end(settings: Settings, grids: Sequence[tuple[str, tuple[Any, ...]]]) -> list[str]:
    """Options whose value is the lowest or highest number of their grid."""
    return [
        name
        for name, values in dict(grids).items()
        if isinstance(values[0], float) and settings[name] in (min(values), max(values))
    ]


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in values.items()}
