"""From results to verdicts: the few questions that tables and figures ask.

A claim holds where the whole 95 % interval is on its side, holds weakly where the estimate is and the interval is not,
does not hold where the estimate is on the other side, and is not testable where there are too few units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from leakscope.reproduction.recipe import ClaimVerdict, Outcome, Tag
from leakscope.reproduction.results import Ended, Results
from leakscope.reproduction.statistics import (
    Estimate,
    correlation_interval,
    mean_interval,
    paired_interval,
    share_interval,
)

FEWEST = 2
# What an attack cell brings back beside its PSNR: the best picture that was had without the update.
_GUESSED = {"psnr": "baseline_psnr"}


def above(
    metric: str,
    ours: Mapping[str, Tag],
    others: Mapping[str, Tag],
    *,
    unit: str = "dB",
    least: float = 0.0,
    ended: Ended = "ok",
) -> Callable[[Results], ClaimVerdict]:
    """Whether `ours` is above `others` by more than `least`, pair by pair; swap the two for "below".

    Not testable in PSNR where both sides stay below what is reached without the update: neither of them rebuilt
    anything, and which of two failures has the lower error says nothing of what an update gives away.
    """

    def judge(results: Results) -> ClaimVerdict:
        left, right = results.pairs(metric, ours, others, ended=ended)
        if len(left) < FEWEST:
            return untestable(f"{len(left)} pairs ended well; {FEWEST} are the fewest", n=len(left))
        told = f"{fmean(left):.4g} against {fmean(right):.4g} {unit}".rstrip()
        guessed, _ = results.pairs(_GUESSED[metric], ours, others, ended=ended) if metric in _GUESSED else ([], [])
        if guessed and max(fmean(left), fmean(right)) <= fmean(guessed):
            why = f"{told}, both below the {fmean(guessed):.4g} {unit} reached without the update"
            return untestable(why, n=len(left))
        return judge_estimate(paired_interval(left, right), least=least, unit=unit, note=told)

    return judge


def reaches(
    metric: str, bar: float, *, unit: str = "dB", ended: Ended = "ok", **tags: Tag
) -> Callable[[Results], ClaimVerdict]:
    """Whether the mean of the cells with these tags is above a bar."""

    def judge(results: Results) -> ClaimVerdict:
        found = results.units(metric, ended=ended, **tags)
        if len(found) < FEWEST:
            return untestable(f"{len(found)} units ended well; {FEWEST} are the fewest", n=len(found))
        estimate = mean_interval(found)
        return judge_estimate(estimate, least=bar, unit=unit, note=f"bar {bar:g} {unit}".rstrip())

    return judge


def succeeds(
    metric: str, bar: float, *, share: float, ended: Ended = "any", **tags: Tag
) -> Callable[[Results], ClaimVerdict]:
    """Whether more than `share` of the units are above a bar; n is the number of units."""

    def judge(results: Results) -> ClaimVerdict:
        found = results.units(metric, ended=ended, **tags)
        if len(found) < FEWEST:
            return untestable(f"{len(found)} units; {FEWEST} are the fewest", n=len(found))
        estimate = share_interval(sum(value > bar for value in found), len(found))
        return judge_estimate(estimate, least=share, unit="share", note=f"units above {bar:g}")

    return judge


def correlates(
    first: Callable[[Results], Sequence[float]], second: Callable[[Results], Sequence[float]], *, least: float = 0.0
) -> Callable[[Results], ClaimVerdict]:
    """Whether two lists of one number per unit are correlated (Pearson) by more than `least`."""

    def judge(results: Results) -> ClaimVerdict:
        left, right = first(results), second(results)
        if min(len(left), len(right)) < 4:
            return untestable(f"{len(left)} points; a correlation with an interval needs 4", n=len(left))
        return judge_estimate(correlation_interval(left, right), least=least, unit="Pearson's r")

    return judge


def judge_estimate(estimate: Estimate, *, least: float = 0.0, unit: str = "", note: str = "") -> ClaimVerdict:
    """The verdict on "the estimate is above `least`"."""
    if estimate.interval is None:
        return untestable("one unit has no interval", n=estimate.n)
    low, high = estimate.interval
    outcome: Outcome = "holds" if low > least else "holds weakly" if estimate.value > least else "does not hold"
    if high < least:
        note = f"{note}; the whole interval is on the other side" if note else "the whole interval is on the other side"
    return ClaimVerdict(outcome, estimate.value, (low, high), unit, estimate.n, note)


def untestable(why: str, *, n: int = 0) -> ClaimVerdict:
    """No verdict, and why."""
    return ClaimVerdict("not testable", n=n, note=why)


def every(*judges: Callable[[Results], ClaimVerdict]) -> Callable[[Results], ClaimVerdict]:
    """The weakest of several verdicts; its note says which of them it is."""
    order: tuple[Outcome, ...] = ("does not hold", "not testable", "holds weakly", "holds")

    def judge(results: Results) -> ClaimVerdict:
        found = [one(results) for one in judges]
        place = min(range(len(found)), key=lambda place: order.index(found[place].outcome))
        worst = found[place]
        said = f"weakest of {len(found)} comparisons, number {place + 1}"
        return ClaimVerdict(worst.outcome, worst.effect, worst.interval, worst.unit, worst.n, f"{said}: {worst.note}")

    return judge
