"""What a defence costs: the accuracy that is left, and how sure one can be of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, quantiles, stdev

from leakscope.errors import UsageError


@dataclass(frozen=True)
class StepRatio:
    """Time of a client step with a defence over that of one without, from steps taken in turn.

    One measurement tells little on a machine that does other things: `median` is of `pairs` ratios, each of two steps
    that follow each other, and half of them lie between `low` and `high`.
    """

    median: float
    low: float
    high: float
    pairs: int

    @classmethod
    def of(cls, ratios: Sequence[float]) -> StepRatio:
        """The middle and the middle half of at least two ratios."""
        low, middle, high = quantiles(ratios, n=4, method="inclusive")
        return cls(middle, low, high, len(ratios))


@dataclass(frozen=True)
class Utility:
    """Outcome of a federated training under one client step.

    Attributes:
        accuracy: Share of the test examples classified rightly after the last round; the mean over the clients where
            each has a network of its own.
        interval: Wilson 95 % interval of `accuracy`; it covers the choice of test examples,
            not the luck of the training seed.
        final_loss: Mean loss on the test examples after the last round.
        step_seconds: Median time of one client step, defence included; on a processor its own time, without that of
            other programs.
        step_ratio: How many times as long as without the defence a client step takes.
        nonzero_fraction: Mean share of the model's parameters for which a client sends a
            value other than 0; layers that are not shared count as 0.
        bytes_sent: Median size of one client's update on the wire, names and shapes included, in the smallest
            lossless form that `leakscope.wire` finds for each tensor.
        rounds: Rounds completed.
        diverged: A non-finite update or loss came up. Training then stopped before that update
            was applied, and `accuracy` is that of the model up to there.
    """

    accuracy: float
    interval: tuple[float, float]
    final_loss: float
    step_seconds: float
    nonzero_fraction: float
    bytes_sent: float
    rounds: int
    diverged: bool = False
    step_ratio: StepRatio | None = None


def wilson_interval(successes: int, total: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a proportion; unlike ±z·√(p(1−p)/n) it is sound at 0 and 1.

    Centre (p + z²/2n) / (1 + z²/n), half width z·√(p(1−p)/n + z²/4n²) / (1 + z²/n).

    References:
        Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.

    Example:
        >>> [round(bound, 4) for bound in wilson_interval(8, 10)]
        [0.4902, 0.9433]
    """
    if total < 1 or not 0 <= successes <= total or not 0 < confidence < 1:
        raise UsageError(
            "wilson_interval needs 0 ≤ successes ≤ total, total ≥ 1 and 0 < confidence < 1, "
            f"got {successes} of {total} at {confidence}"
        )
    return wilson_of_share(successes / total, total, confidence=confidence)


def wilson_of_share(share: float, total: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """`wilson_interval` of a share that need not be a whole number of `total`, such as a mean over networks."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    spread = z * z / total
    centre = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)


def seeds_interval(accuracies: Sequence[float], total: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Interval of the mean accuracy over seeds: what another seed and other test examples could have given.

    Student's half width t·s/√k of k seeds (s with k − 1 in its denominator) and the distance to the Wilson bound of the
    mean accuracy on `total` examples, at right angles: √(a² + b²). All seeds answer the same test examples, so the
    spread between them knows nothing of that choice, and the other way round. Of one seed it is Wilson's alone.

    Example:
        >>> [round(bound, 4) for bound in seeds_interval([0.8, 0.9, 0.85], 1_000)]
        [0.7236, 0.9759]
    """
    if not accuracies:
        raise UsageError("seeds_interval needs the accuracy of at least one seed, got none")
    mean, count = fmean(accuracies), len(accuracies)
    half = 0.0 if count == 1 else _student(count - 1, confidence) * stdev(accuracies) / math.sqrt(count)
    low, high = wilson_of_share(mean, total, confidence=confidence)
    return max(0.0, mean - math.hypot(half, mean - low)), min(1.0, mean + math.hypot(half, high - mean))


def difference_interval(
    first: float, second: float, *, of_first: tuple[float, float], of_second: tuple[float, float]
) -> tuple[float, float]:
    """Interval of `first` − `second` from the intervals of both, measured apart.

    Lower bound d − √((a − a_low)² + (b_high − b)²), upper bound d + √((a_high − a)² + (b − b_low)²), d = a − b.

    References:
        Newcombe, "Interval estimation for the difference between independent proportions", Statistics in Medicine
        1998, method 10.

    Example:
        >>> [round(bound, 3) for bound in difference_interval(0.8, 0.7, of_first=(0.75, 0.84), of_second=(0.65, 0.75))]
        [0.029, 0.164]
    """
    apart = first - second
    low = apart - math.hypot(first - of_first[0], of_second[1] - second)
    return low, apart + math.hypot(of_first[1] - first, second - of_second[0])


def _student(freedom: int, confidence: float) -> float:
    # Imported here: only several seeds need it.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))
