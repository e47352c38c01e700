"""The search for policies: candidates, the accuracy they must leave, and the ones of lowest S_pri."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from leakscope.counts import check_count
from leakscope.defences.transforms import accuracy_score, optuna_search
from leakscope.defences.transforms.accuracy_score import is_accepted
from leakscope.defences.transforms.candidates import MOST_CANDIDATES, draw_candidates, policy_of
from leakscope.defences.transforms.privacy_score import COARSE, Variant
from leakscope.defences.transforms.race import RaceResult, Rung, plan_rungs, race
from leakscope.defences.transforms.score_bench import ACCURACY, PRIVACY, cost_of, privacy_kind
from leakscope.defences.transforms.score_book import ScoreBook
from leakscope.errors import UsageError, suggest
from leakscope.operations.policy import Policy

Mode = Literal["race", "exhaustive", "tpe", "nsga2"]
MODES: tuple[Mode, ...] = get_args(Mode)
# Pictures that all candidates of a race are shown. Fewer is faster and loses more: see benchmarks/policy_race.py.
FIRST = 3
IDENTITY = policy_of([])
# As −85 is to the 63.4 pictures of its batch.
_PAPER_THRESHOLD = 85 / 63.4


@dataclass(frozen=True)
class SearchSettings:
    """What to look for and how.

    Attributes:
        candidates: how many policies are drawn or proposed; equal ones are scored once.
        mode: "race", "exhaustive", or "tpe" and "nsga2", whose proposals are raced.
        top: how many policies are wanted.
        threshold: S_acc that a policy must reach; −85 as released, 1.34 (from below) for the papers' formula.
        first: pictures of the first round; 3 in a race, a quarter of all where Optuna would learn them by heart.
        seed: of the candidates.
        also: policies that take part besides, such as published ones.
    """

    candidates: int = 1_500
    mode: Mode = "race"
    top: int = 10
    threshold: float | None = None
    first: int | None = None
    seed: int = 0
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for policy in self.also:
            Policy.parse(policy)
        check_count(self.candidates, "candidates", most=MOST_CANDIDATES)
        check_count(self.top, "top", most=MOST_CANDIDATES)
        if self.first is not None:
            check_count(self.first, "first", most=MOST_CANDIDATES)
        if self.mode not in MODES:
            raise UsageError(f"unknown mode {self.mode!r}.{suggest(self.mode, MODES)}")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise UsageError(f"the threshold must be a finite number, got {self.threshold}")

    def limit(self, variant: Variant) -> float:
        """The threshold of S_acc."""
        usual = _PAPER_THRESHOLD if variant == "paper" else accuracy_score.THRESHOLD
        return usual if self.threshold is None else self.threshold

    def first_pictures(self, pictures: int) -> int:
        """Pictures that every candidate is shown."""
        if self.mode == "exhaustive":
            return pictures
        usual = FIRST if self.mode == "race" else max(1, pictures // 4)
        return min(pictures, self.first or usual)

    @property
    def every(self) -> int:
        """Which points of a line the rounds of a race take before the last one; Optuna is told full scores."""
        return COARSE if self.mode == "race" else 1


@dataclass(frozen=True)
class Scored:
    """A policy with its scores.

    Attributes:
        policy: in its one form.
        privacy: mean S_pri over all pictures.
        error: standard error of that mean; it is of the pictures, which are the same for all policies.
        accuracy: mean S_acc.
    """

    policy: Policy
    privacy: float
    error: float
    accuracy: float


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes:
        best: the policies of lowest S_pri among those that leave enough accuracy, best first.
        candidates: the different policies that were looked at.
        race: how they were sorted out.
        unchanged: S_acc of pictures that are left alone.
        front: of a search on both scores, the policies that none beats in both, with the scores of the first round.
    """

    best: tuple[Scored, ...]
    candidates: tuple[Policy, ...]
    race: RaceResult
    unchanged: float
    front: tuple[tuple[Policy, float, float], ...] = ()


def search(book: ScoreBook, settings: SearchSettings) -> SearchResult:
    """Find the best policies; with the same scores and seed the same ones, however often it was stopped."""
    bench = book.bench
    pictures, variant = len(bench.pictures.inputs), bench.variant
    first, limit = settings.first_pictures(pictures), settings.limit(variant)

    def accept(policies: Sequence[Policy]) -> dict[Policy, bool]:
        return {one: is_accepted(score, limit, variant) for one, score in book.accuracy(policies).items()}

    named = [Policy.parse(policy).canonical() for policy in settings.also]
    policies = list(dict.fromkeys([*named, *_find_candidates(book, settings, first=first)]))
    rungs = plan_rungs(len(policies), pictures=pictures, first=first, finalists=settings.top, every=settings.every)
    book.planned += _sum_costs(rungs, proposed=settings.mode in ("tpe", "nsga2"), batches=len(bench.batches))
    found = race(
        policies,
        measure=lambda asked, rung: book.privacy(asked, rung.pictures, every=rung.every),
        accept=accept,
        pictures=pictures,
        first=first,
        finalists=settings.top,
        every=settings.every,
    )
    front = _front(book, policies, first) if settings.mode == "nsga2" else ()
    best = tuple(_describe(book, policy, score) for policy, score in found.ranking)
    unchanged = book.accuracy([IDENTITY])[IDENTITY]
    return SearchResult(best, tuple(policies), found, unchanged, front)


def _find_candidates(book: ScoreBook, settings: SearchSettings, *, first: int) -> list[Policy]:
    if settings.mode not in ("tpe", "nsga2"):
        return draw_candidates(settings.candidates, seed=settings.seed)
    limit, variant = settings.limit(book.bench.variant), book.bench.variant
    book.planned += settings.candidates * (first * cost_of(PRIVACY) + len(book.bench.batches) * cost_of(ACCURACY))

    def on_one(policies: Sequence[Policy]) -> list[list[float]]:
        privacy, accuracy = book.privacy(policies, first), book.accuracy(policies)
        # No policy scores more than 1: what leaves too little accuracy is as bad as can be.
        return [[privacy[one] if is_accepted(accuracy[one], limit, variant) else 1.0] for one in policies]

    def on_both(policies: Sequence[Policy]) -> list[list[float]]:
        privacy, accuracy = book.privacy(policies, first), book.accuracy(policies)
        return [[privacy[one], _to_minimise(accuracy[one], variant)] for one in policies]

    evaluate = on_one if settings.mode == "tpe" else on_both
    return optuna_search.propose(settings.mode, settings.candidates, evaluate=evaluate, seed=settings.seed)


def _sum_costs(rungs: Sequence[Rung], *, proposed: bool, batches: int) -> int:
    """What a race costs; Optuna has had all candidates on the first pictures already."""
    asked = 1 if proposed else 1 + (rungs[1:] or rungs)[0].candidates
    cost, shown = asked * batches * cost_of(ACCURACY), {rungs[0].every: rungs[0].pictures if proposed else 0}
    for rung in rungs:
        cost += rung.candidates * (rung.pictures - shown.get(rung.every, 0)) * cost_of(privacy_kind(rung.every))
        shown[rung.every] = rung.pictures
    return cost


def _to_minimise(accuracy: float, variant: Variant) -> float:
    return accuracy if variant == "paper" else -accuracy


def _front(book: ScoreBook, policies: Sequence[Policy], first: int) -> tuple[tuple[Policy, float, float], ...]:
    """Policies that no other beats in both scores, by S_pri."""
    privacy, accuracy = book.privacy(policies, first), book.accuracy(policies)
    found, least = [], math.inf
    for one in sorted(policies, key=lambda one: (privacy[one], _to_minimise(accuracy[one], book.bench.variant), one)):
        cost = _to_minimise(accuracy[one], book.bench.variant)
        if cost < least:
            found.append((one, privacy[one], accuracy[one]))
            least = cost
    return tuple(found)


def _describe(book: ScoreBook, policy: Policy, score: float) -> Scored:
    values = book.values(PRIVACY, policy, range(len(book.bench.pictures.inputs)))
    spread = math.fsum((value - score) ** 2 for value in values) / max(1, len(values) - 1)
    return Scored(policy, score, math.sqrt(spread / len(values)), book.accuracy([policy])[policy])
