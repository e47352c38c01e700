"""Judges that the recipes of the thesis's chapter 3 share, beside those of `leakscope.reproduction`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from leakscope.reproduction import CellResult, ClaimVerdict, Results, judge_estimate, untestable
from leakscope.reproduction.judging import FEWEST
from leakscope.reproduction.recipe import Tag
from leakscope.reproduction.results import Ended
from leakscope.reproduction.statistics import mean_interval, paired_interval, welch_interval

Judge = Callable[[Results], ClaimVerdict]


def falls_short(metric: str, bar: float, *, unit: str = "dB", ended: Ended = "any", **tags: Tag) -> Judge:
    """Whether the mean of the cells with these tags is below a bar; the effect is the bar less the mean."""

    def judge(results: Results) -> ClaimVerdict:
        found = results.units(metric, ended=ended, **tags)
        if len(found) < FEWEST:
            return untestable(f"{len(found)} units; {FEWEST} are the fewest", n=len(found))
        estimate = mean_interval([bar - value for value in found])
        return judge_estimate(estimate, unit=unit, note=f"mean {fmean(found):.3g}, bar {bar:g}")

    return judge


def rises(first: str, last: str, *, unit: str, ended: Ended = "any", **tags: Tag) -> Judge:
    """Whether one value of a cell is above another of the same unit: `last` − `first`, unit by unit."""

    def judge(results: Results) -> ClaimVerdict:
        cells = [one for one in results.where(**tags) if ended == "any" or one.is_ok]
        pairs = [pair for one in cells for pair in zip(one.units(first), one.units(last), strict=True)]
        finite = [pair for pair in pairs if all(map(math.isfinite, pair))]
        if len(finite) < FEWEST:
            return untestable(f"{len(finite)} units; {FEWEST} are the fewest", n=len(finite))
        before, behind = zip(*finite, strict=True)
        note = f"from {fmean(before):.3g} to {fmean(behind):.3g}"
        return judge_estimate(paired_interval(behind, before), unit=unit, note=note)

    return judge


def stalls(first: str, last: str, most: float, *, unit: str = "dB", **tags: Tag) -> Judge:
    """Whether a value of a cell rises by less than `most` from `first` to `last`; the effect is what is lacking."""

    def judge(results: Results) -> ClaimVerdict:
        pairs = [pair for one in results.where(**tags) for pair in zip(one.units(first), one.units(last), strict=True)]
        lacking = [most - (behind - before) for before, behind in pairs if math.isfinite(behind - before)]
        if len(lacking) < FEWEST:
            return untestable(f"{len(lacking)} units; {FEWEST} are the fewest", n=len(lacking))
        return judge_estimate(mean_interval(lacking), unit=unit, note=f"rises by {most - fmean(lacking):.3g} {unit}")

    return judge


def above_by_unit(
    metric: str, ours: Mapping[str, Tag], others: Mapping[str, Tag], *, per: Sequence[str], unit: str = "dB"
) -> Judge:
    """As `above`, after the mean over all cells that agree in the tags `per`: what is nested counts once."""

    def judge(results: Results) -> ClaimVerdict:
        sides = [_mean_by(results.where(**tags), metric, per) for tags in (ours, others)]
        common = [key for key in sides[0] if key in sides[1]]
        if len(common) < FEWEST:
            return untestable(f"{len(common)} pairs; {FEWEST} are the fewest", n=len(common))
        left, right = ([side[key] for key in common] for side in sides)
        note = f"{fmean(left):.4g} against {fmean(right):.4g} {unit}".rstrip()
        return judge_estimate(paired_interval(left, right), unit=unit, note=note)

    return judge


def unpaired_above(
    metric: str, ours: Mapping[str, Tag], others: Mapping[str, Tag], *, unit: str = "dB", ended: Ended = "any"
) -> Judge:
    """Whether the mean of `ours` is above that of `others`, which are other victims."""

    def judge(results: Results) -> ClaimVerdict:
        left, right = (results.units(metric, ended=ended, **tags) for tags in (ours, others))
        if min(len(left), len(right)) < FEWEST:
            return untestable(f"{len(left)} and {len(right)} units; {FEWEST} are the fewest", n=len(left) + len(right))
        note = f"{fmean(left):.4g} against {fmean(right):.4g} {unit}".rstrip()
        return judge_estimate(welch_interval(left, right), unit=unit, note=note)

    return judge


def _mean_by(results: Results, metric: str, per: Sequence[str]) -> dict[tuple[Tag, ...], float]:
    found: dict[tuple[Tag, ...], list[float]] = {}
    for one in results:
        values = [value for value in one.units(metric) if math.isfinite(value)]
        if values:
            found.setdefault(tuple(one.cell.tags[name] for name in per), []).extend(values)
    return {key: fmean(values) for key, values in found.items()}


def share_above(cell: CellResult, metric: str, bar: float) -> float:
    """Share of a cell's examples that are above a bar."""
    return fmean(value > bar for value in cell.examples(metric))


def share_exceeds(metric: str, bar: float, ours: Mapping[str, Tag], others: Mapping[str, Tag]) -> Judge:
    """Whether more of `ours` are above a bar than of `others`; pairs of cells that differ in nothing else."""

    def judge(results: Results) -> ClaimVerdict:
        left: list[float] = []
        right: list[float] = []
        for one in results.where(**ours):
            rest = {name: value for name, value in one.cell.tags.items() if name not in ours}
            for other in results.where(**others, **{key: value for key, value in rest.items() if key not in others}):
                if one.examples(metric) and other.examples(metric):
                    left.append(share_above(one, metric, bar))
                    right.append(share_above(other, metric, bar))
        if len(left) < FEWEST:
            return untestable(f"{len(left)} pairs; {FEWEST} are the fewest", n=len(left))
        note = f"{fmean(left):.0%} against {fmean(right):.0%} above {bar:g}"
        return judge_estimate(paired_interval(left, right), unit="share", note=note)

    return judge


def where_run(judge: Judge, *, tag: str, values: Sequence[Tag]) -> Judge:
    """The verdict where cells with one of these values of a tag were run; else that they were not."""

    def judged(results: Results) -> ClaimVerdict:
        if not set(values) & set(results.tags(tag)):
            return untestable(f"{tag} {' and '.join(map(str, values))} is run at scale paper alone")
        return judge(results)

    return judged


def means_over(results: Results, metrics: Sequence[str], **tags: Tag) -> list[float]:
    """The mean of each of several values over all units with these tags; none where nothing was measured."""
    found = [results.units(metric, ended="any", **tags) for metric in metrics]
    return [fmean(values) for values in found] if all(found) else []
