"""Successive halving: all candidates on a few pictures, the better half on twice as many, the last ones on all.

All rounds but the last may be scored coarsely; what the last round says is the full score.
Every candidate meets the same pictures, noise and coins, so that differences are of the policies and not of the luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from leakscope.counts import check_count
from leakscope.operations.policy import Policy


@dataclass(frozen=True)
class Rung:
    """One round of a race: so many candidates on so many pictures, by every so-manyth point of their lines."""

    candidates: int
    pictures: int
    every: int = 1


# Means over the first pictures, one for each policy asked for.
Measure = Callable[[Sequence[Policy], Rung], dict[Policy, float]]
# Whether policies leave enough accuracy.
Accept = Callable[[Sequence[Policy]], dict[Policy, bool]]


@dataclass(frozen=True)
class RaceResult:
    """How a race ended.

    Attributes:
        ranking: finalists, the best first, with their full score.
        rungs: what was measured.
        rejected: candidates that leave too little accuracy, of those that were asked.
    """

    ranking: tuple[tuple[Policy, float], ...]
    rungs: tuple[Rung, ...]
    rejected: tuple[Policy, ...]


def plan_rungs(candidates: int, *, pictures: int, first: int, finalists: int, every: int = 1) -> list[Rung]:
    """The rounds: pictures double and candidates halve until `finalists` are left, which get all pictures and points.

    `every` is of the rounds before the last.
    """
    for value, label in ((candidates, "candidates"), (pictures, "images"), (first, "first"), (finalists, "finalists")):
        check_count(value, label, most=10**9)
    rungs, left, shown = [], candidates, min(first, pictures)
    while left > finalists and shown < pictures:
        rungs.append(Rung(left, shown, every))
        left, shown = max(finalists, math.ceil(left / 2)), min(pictures, 2 * shown)
    return [*rungs, Rung(left, pictures)]


def race(
    policies: Sequence[Policy],
    *,
    measure: Measure,
    accept: Accept,
    pictures: int,
    first: int,
    finalists: int,
    every: int = 1,
) -> RaceResult:
    """Find the `finalists` policies of lowest score that are accepted; `every` is of all rounds but the last.

    Accuracy is asked only of those that would get through the first round, best first, until there are enough.
    """
    rungs = plan_rungs(len(policies), pictures=pictures, first=first, finalists=finalists, every=every)
    scores = measure(policies, rungs[0])
    left, rejected = _filter(_ranked(scores), wanted=(rungs[1:] or rungs)[0].candidates, accept=accept)
    done = [rungs[0]]
    for place, rung in enumerate(rungs[1:], start=1):
        done.append(replace(rung, candidates=len(left)))
        scores = measure(left, done[-1])
        following = rungs[place + 1].candidates if place + 1 < len(rungs) else len(left)
        left = _ranked(scores)[:following]
    return RaceResult(tuple((one, scores[one]) for one in left[:finalists]), tuple(done), tuple(rejected))


def _ranked(scores: dict[Policy, float]) -> list[Policy]:
    # By name where scores are equal: the order must not depend on who finished first.
    return sorted(scores, key=lambda one: (scores[one], one))


def _filter(ranked: list[Policy], *, wanted: int, accept: Accept) -> tuple[list[Policy], list[Policy]]:
    """The first `wanted` accepted ones, and those that were asked and refused."""
    accepted: list[Policy] = []
    rejected: list[Policy] = []
    asked = 0
    while len(accepted) < wanted and asked < len(ranked):
        wave = ranked[asked : asked + wanted - len(accepted)]
        asked += len(wave)
        answers = accept(wave)
        accepted += [one for one in wave if answers[one]]
        rejected += [one for one in wave if not answers[one]]
    return accepted, rejected
