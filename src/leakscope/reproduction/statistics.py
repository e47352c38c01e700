"""Intervals of 95 % for what a few victims, seeds or policies show. Pairs are compared as pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import torch

from leakscope.errors import UsageError
from leakscope.federated.utility import wilson_interval
from leakscope.rng import generator

CONFIDENCE = 0.95
RESAMPLES = 10_000


@dataclass(frozen=True)
class Estimate:
    """A number, its 95 % interval (None where too few units tell nothing), and how many units are behind it."""

    value: float
    interval: tuple[float, float] | None
    n: int


def mean_interval(values: Sequence[float], *, confidence: float = CONFIDENCE) -> Estimate:
    """The mean with Student's interval m ± t·s/√n, t of n − 1 degrees of freedom; none of a single value.

    Example:
        >>> found = mean_interval([1.0, 2.0, 3.0])
        >>> found.value, [round(bound, 3) for bound in found.interval]
        (2.0, [-0.484, 4.484])
    """
    _require(values, least=1, what="mean_interval")
    middle, count = fmean(values), len(values)
    if count < 2:
        return Estimate(middle, None, count)
    half = _student(count - 1, confidence) * stdev(values) / math.sqrt(count)
    return Estimate(middle, (middle - half, middle + half), count)


def paired_interval(ours: Sequence[float], others: Sequence[float], *, confidence: float = CONFIDENCE) -> Estimate:
    """The mean of ours − others, unit by unit, with Student's interval of the differences."""
    if len(ours) != len(others):
        raise UsageError(f"pairs need as many values on both sides, got {len(ours)} and {len(others)}")
    return mean_interval([one - other for one, other in zip(ours, others, strict=True)], confidence=confidence)


def welch_interval(ours: Sequence[float], others: Sequence[float], *, confidence: float = CONFIDENCE) -> Estimate:
    """The difference of two means of unrelated units, with Welch's interval; n counts the units of both.

    Half width t·√(s₁²/n₁ + s₂²/n₂), t of Welch and Satterthwaite's degrees of freedom.
    """
    for values in (ours, others):
        _require(values, least=2, what="welch_interval")
    parts = [stdev(values) ** 2 / len(values) for values in (ours, others)]
    gap, spread = fmean(ours) - fmean(others), sum(parts)
    if spread == 0:
        return Estimate(gap, (gap, gap), len(ours) + len(others))
    weights = [part**2 / (len(values) - 1) for part, values in zip(parts, (ours, others), strict=True)]
    half = _student(spread**2 / sum(weights), confidence) * math.sqrt(spread)
    return Estimate(gap, (gap - half, gap + half), len(ours) + len(others))


def bootstrap_interval(
    values: Sequence[float],
    statistic: Callable[[Sequence[float]], float],
    *,
    seed: int = 0,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Any statistic, a median for example, with the percentile interval of 10,000 resamples drawn by `seed`."""
    _require(values, least=2, what="bootstrap_interval")
    rng = generator(seed, "reproduction", "bootstrap")
    rows = torch.randint(len(values), (RESAMPLES, len(values)), generator=rng)
    drawn = torch.tensor(list(values), dtype=torch.float64)[rows].tolist()
    found = torch.tensor([statistic(row) for row in drawn], dtype=torch.float64)
    tail = (1 - confidence) / 2
    low, high = torch.quantile(found, torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return Estimate(statistic(values), (low, high), len(values))


def share_interval(successes: int, total: int, *, confidence: float = CONFIDENCE) -> Estimate:
    """A share with Wilson's interval."""
    return Estimate(successes / total, wilson_interval(successes, total, confidence=confidence), total)


def correlation_interval(
    first: Sequence[float], second: Sequence[float], *, confidence: float = CONFIDENCE
) -> Estimate:
    """Pearson's r with Fisher's interval tanh(artanh r ± z/√(n − 3)); none of fewer than four points.

    Where one side does not vary there is no correlation to speak of, and r is 0 with the whole range as interval.
    """
    if len(first) != len(second):
        raise UsageError(f"a correlation needs as many values on both sides, got {len(first)} and {len(second)}")
    _require(first, least=2, what="correlation_interval")
    r, count = _pearson(first, second), len(first)
    if r is None:
        return Estimate(0.0, (-1.0, 1.0), count)
    if count < 4:
        return Estimate(r, None, count)
    if abs(r) >= 1:
        return Estimate(r, (r, r), count)
    half = _normal(confidence) / math.sqrt(count - 3)
    return Estimate(r, (math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)), count)


def _pearson(first: Sequence[float], second: Sequence[float]) -> float | None:
    left, right = (torch.tensor(list(values), dtype=torch.float64) for values in (first, second))
    left, right = left - left.mean(), right - right.mean()
    lengths = float(left.norm() * right.norm())
    return None if lengths == 0 else max(-1.0, min(1.0, float(left @ right) / lengths))


def _require(values: Sequence[float], *, least: int, what: str) -> None:
    if len(values) < least or not all(math.isfinite(value) for value in values):
        raise UsageError(f"{what} needs at least {least} finite values, got {list(values)[:8]}")


def _student(freedom: float, confidence: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def _normal(confidence: float) -> float:
    from scipy.special import ndtri

    return float(ndtri((1 + confidence) / 2))
