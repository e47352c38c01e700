"""Judges whose unit is a seed: whatever was trained from one seed shares its examples and its network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean

from leakscope.reproduction import ClaimVerdict, Results, judge_estimate, untestable
from leakscope.reproduction.judging import FEWEST
from leakscope.reproduction.recipe import Tag
from leakscope.reproduction.statistics import mean_interval


def mean_of(results: Results, metric: str, **tags: Tag) -> float | None:
    """Mean over the cells with these tags; None where there are none, or where one of them did not end well."""
    chosen = results.where(**tags)
    if not len(chosen) or not all(one.is_ok for one in chosen):
        return None
    units = chosen.units(metric)
    return fmean(units) if units else None


def judge_seeds(
    measure: Callable[[Results], float | None], *, unit: str, least: float = 0.0
) -> Callable[[Results], ClaimVerdict]:
    """Whether what `measure` says of one seed's cells is above `least`, over the seeds of which it says something."""

    def judge(results: Results) -> ClaimVerdict:
        told = [measure(results.where(seed=seed)) for seed in results.tags("seed")]
        found = [value for value in told if value is not None]
        if len(found) < FEWEST:
            return untestable(f"{len(found)} seeds have what is compared; {FEWEST} are the fewest", n=len(found))
        return judge_estimate(mean_interval(found), least=least, unit=unit)

    return judge


def above_by_seed(
    metric: str,
    ours: Mapping[str, Tag],
    others: Mapping[str, Tag],
    *,
    unit: str = "share of words",
    least: float = 0.0,
) -> Callable[[Results], ClaimVerdict]:
    """Whether the mean of the cells tagged `ours` is above that of `others` by more than `least`, seed by seed."""

    def gap(results: Results) -> float | None:
        left, right = mean_of(results, metric, **ours), mean_of(results, metric, **others)
        return None if left is None or right is None else left - right

    return judge_seeds(gap, unit=unit, least=least)
