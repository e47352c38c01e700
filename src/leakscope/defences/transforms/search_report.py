"""What a search says about itself: how noisy its scores are, how diverse its best, whether S_pri predicts anything."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist, fmean, variance
from typing import Any

from leakscope.defences.transforms.accuracy_score import is_accepted
from leakscope.defences.transforms.score_bench import ACCURACY, PRIVACY, ScoreBench
from leakscope.defences.transforms.score_book import ScoreBook
from leakscope.defences.transforms.score_store import Key
from leakscope.defences.transforms.search import SearchResult, SearchSettings
from leakscope.errors import UsageError
from leakscope.operations.policy import Policy

# Entries of the library that are one function, and how many there are: scored apart they differ by chance.
_EQUAL = {"translate-y": ("24", 4), "identity": ("28", 2)}
NOISE_PICTURES = 10


@dataclass(frozen=True)
class NoiseFloor:
    """How much a score changes with other random numbers (noise, signs, the untrained network) on the same pictures.

    Attributes:
        privacy: standard deviation of S_pri over all pictures, from that of single pictures.
        accuracy: standard deviation of the mean S_acc.
        pictures: how many pictures it was measured on.
        scored: the scores of the equal policies, by what they do.
    """

    privacy: float
    accuracy: float
    pictures: int
    scored: dict[str, list[float]]


@dataclass(frozen=True)
class Correlation:
    """Pearson's r of two measurements of the same policies, with Fisher's 95 % interval."""

    r: float
    low: float
    high: float
    policies: int
    pictures: int
    what: str = ""


@dataclass(frozen=True)
class Diversity:
    """How different the best policies are: functions used, and what two of them share on average (Jaccard)."""

    functions: int
    overlap: float


def noise_floor(book: ScoreBook) -> NoiseFloor:
    """Score equal policies apart, each with other random numbers."""
    bench = book.bench
    pictures, batches = min(NOISE_PICTURES, len(bench.pictures.inputs)), len(bench.batches)
    draws = [(policy, draw) for policy, count in _EQUAL.values() for draw in range(1, count + 1)]
    keys = [Key(PRIVACY, policy, draw, place) for policy, draw in draws for place in range(pictures)]
    keys += [Key(ACCURACY, policy, draw, place) for policy, draw in draws for place in range(batches)]
    book.fill(keys)
    single, whole, scored = [], [], {}
    for name, (policy, count) in _EQUAL.items():
        one, numbers = Policy.parse(policy), range(1, count + 1)
        rows = [book.values(PRIVACY, one, range(pictures), draw=draw) for draw in numbers]
        single.append((count, fmean(variance(values) for values in zip(*rows, strict=True))))
        means = [fmean(book.values(ACCURACY, one, range(batches), draw=draw)) for draw in numbers]
        whole.append((count, variance(means)))
        scored[name] = [fmean(row) for row in rows]
    return NoiseFloor(_pool(single) / math.sqrt(len(bench.pictures.inputs)), _pool(whole), pictures, scored)


def _pool(groups: Sequence[tuple[int, float]]) -> float:
    """The standard deviation behind variances of several groups, each with its number of values."""
    freedom = sum(count - 1 for count, _ in groups)
    return math.sqrt(sum((count - 1) * value for count, value in groups) / freedom)


def pearson(one: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """r with its 95 % interval, tanh(artanh r ± 1.96 / √(n − 3)); nothing is known where one does not vary."""
    count = len(one)
    if count != len(other) or count < 4:
        raise UsageError(f"a correlation with an interval needs at least 4 pairs, got {count} and {len(other)}")
    first, second = fmean(one), fmean(other)
    spread = math.sqrt(math.fsum((a - first) ** 2 for a in one) * math.fsum((b - second) ** 2 for b in other))
    if not spread:
        return math.nan, -1.0, 1.0
    shared = math.fsum((a - first) * (b - second) for a, b in zip(one, other, strict=True))
    r = max(-1.0, min(1.0, shared / spread))
    if abs(r) == 1:
        return r, r, r
    half = NormalDist().inv_cdf(0.975) / math.sqrt(count - 3)
    return r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)


def diversity(policies: Sequence[Policy]) -> Diversity:
    """Functions in all, and the mean share of them that two policies have in common."""
    used = [{index for part in policy.canonical().parts for index in part} for policy in policies]
    pairs = [len(one & other) / len(one | other) for one, other in itertools.combinations(used, 2)]
    return Diversity(len(set[int]().union(*used)), fmean(pairs) if pairs else 1.0)


def describe(
    result: SearchResult,
    settings: SearchSettings,
    bench: ScoreBench,
    *,
    noise: NoiseFloor | None = None,
    correlation: Correlation | None = None,
) -> dict[str, Any]:
    """Everything as plain JSON; it holds no times, so that a continued search gives the same bytes."""
    return {
        "mode": settings.mode,
        "scores": bench.variant,
        "seed": settings.seed,
        "candidates": {"drawn": settings.candidates, "different": len(result.candidates)},
        "threshold": settings.limit(bench.variant),
        "unchanged": result.unchanged,
        "rejected": [str(policy) for policy in result.race.rejected],
        "rounds": [asdict(rung) for rung in result.race.rungs],
        "best": [
            {
                "policy": str(one.policy),
                "does": in_words(one.policy),
                "privacy": one.privacy,
                "error": one.error,
                "accuracy": one.accuracy,
            }
            for one in result.best
        ],
        "front": [
            {"policy": str(one), "privacy": privacy, "accuracy": accuracy} for one, privacy, accuracy in result.front
        ],
        "noise": None if noise is None else asdict(noise),
        "diversity": asdict(diversity([one.policy for one in result.best])) if result.best else None,
        "correlation": None if correlation is None else asdict(correlation),
        "notes": _notes(result, settings, bench, noise),
    }


def in_words(policy: Policy) -> str:
    """What a policy does, in order."""
    parts = [["nothing" if entry.is_identity else entry.name for entry in part] for part in policy.entries]
    return " or ".join(", ".join(part) for part in parts)


def _notes(result: SearchResult, settings: SearchSettings, bench: ScoreBench, noise: NoiseFloor | None) -> list[str]:
    rows, limit = fmean(len(batch) for batch in bench.batches), settings.limit(bench.variant)
    found = []
    if settings.threshold is None and not 40 <= rows <= 90:
        found.append(
            f"the usual threshold was made for a ResNet and batches of about 63 pictures; here they have {rows:.3g}, "
            f"and pictures left alone score {result.unchanged:.4g}: choose --threshold by that"
        )
    if not is_accepted(result.unchanged, limit, bench.variant):
        found.append(f"pictures left alone score {result.unchanged:.4g} and would be rejected: set another --threshold")
    if len(result.best) < settings.top:
        found.append(f"only {len(result.best)} of the {settings.top} policies wanted were found")
    if noise is not None and len(result.best) > 1:
        near = sum(one.privacy - result.best[0].privacy <= 2 * noise.privacy for one in result.best[1:])
        found.append(f"{near} of the other {len(result.best) - 1} are within two noise floors of the best")
    return found
