"""ε of repeated Gaussian noise, for the ways in which examples come into a step.

Our own code and small, because ε is printed by every installation and not only by those with the `dp` extra; tests
compare it with Opacus and dp-accounting, which have that extra. A multiplier is always the standard deviation of the
noise over the *sensitivity*: how far one record can move what the noise is added to, between two neighbours.

- Every step sees the record: `gaussian_epsilon`, exact.
- Poisson sampling, neighbours with and without the record: `poisson_epsilon`.
- Batches of fixed size drawn without replacement, neighbours that differ in one record: `fixed_batch_epsilon`.

Example:
    >>> round(poisson_epsilon(1.0, rate=0.01, steps=1_000, delta=1e-5), 2)
    2.1
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, log_ndtr, logsumexp

from leakscope.errors import UsageError

# Any order above 1 gives a valid ε; these are dense where small ε are found.
ORDERS: tuple[float, ...] = (*(1 + x / 10 for x in range(1, 100)), *range(11, 65), 80, 96, 128, 192, 256, 512, 1024)
WHOLE_ORDERS: tuple[int, ...] = tuple(int(order) for order in ORDERS if order >= 2 and order == int(order))
# Beyond it rounding in the exact curve is larger than what it is tighter than the simple bound.
_LARGEST_EXACT = 1e4
# Terms of the bound for fixed batches that are taken from the tighter of two theorems.
_MOST_MOMENTS = 64
# Of calibrated noise: how much more than the least it may be.
_EXCESS = 1e-4
_LARGEST_MULTIPLIER = 1e6


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The least δ for which N(0, 1) and N(μ, 1) are (ε, δ) indistinguishable.

    Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ); Balle and Wang, ICML 2018, theorem 8.
    """
    if mu == 0:
        return 0.0
    first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return max(0.0, math.exp(first) - math.exp(min(second, first)))


def gaussian_epsilon(multiplier: float, *, steps: int, delta: float) -> float:
    """ε of `steps` steps that all see the record: exact, since T steps are one with μ = √T / multiplier."""
    _check(delta=delta, steps=steps, multiplier=multiplier)
    if multiplier == 0:
        return math.inf
    mu = math.sqrt(steps) / multiplier
    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    if mu > _LARGEST_EXACT:
        return high
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    low = 0.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(mu, middle) > delta else (low, middle)
    # The upper end: never less than what holds.
    return high


def poisson_rdp(order: float, *, rate: float, multiplier: float) -> float:
    """Rényi divergence of order α of one step in which every record takes part with probability `rate`.

    log E[((1 − q) + q e^((2x − 1)/2σ²))^α] / (α − 1) over x ~ N(0, σ²): Mironov, Talwar, Zhang 2019.
    The larger of the two directions between a data set with the record and one without it.
    """
    if rate == 0:
        return 0.0
    if rate == 1:
        return order / (2 * multiplier**2)
    whole = order == int(order)
    log_moment = _sum_moment(int(order), rate, multiplier) if whole else _integrate_moment(order, rate, multiplier)
    return max(0.0, log_moment / (order - 1))


def _sum_moment(order: int, rate: float, multiplier: float) -> float:
    k = np.arange(order + 1)
    weights = _log_binomial(order, k) + (order - k) * math.log1p(-rate) + k * math.log(rate)
    return _log_sum(weights + k * (k - 1) / (2 * multiplier**2))


def _integrate_moment(order: float, rate: float, multiplier: float) -> float:
    """By the trapezoidal rule, whose error vanishes faster than any power for such integrands.

    The step must be small against σ and against the nearest complex zero of the mixture, πσ² off the real line.
    """
    sigma = multiplier
    step = min(sigma / 20, sigma**2 / 4)
    x = np.arange(-12 * sigma, order + 12 * sigma, step)
    mixture = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * sigma**2))
    density = -0.5 * (x / sigma) ** 2 - math.log(sigma * math.sqrt(2 * math.pi))
    return _log_sum(order * mixture + density) + math.log(step)


def poisson_epsilon(
    multiplier: float, *, rate: float, steps: int, delta: float, orders: Sequence[float] = ORDERS
) -> float:
    """ε of `steps` steps under Poisson sampling: what Opacus prints of its training.

    leakscope's own clients do not sample like this; see `fixed_batch_epsilon`.
    """
    _check(delta=delta, steps=steps, multiplier=multiplier, rate=rate)
    if multiplier == 0:
        return math.inf if rate else 0.0
    # Below it the integral needs millions of points, and ε is in the thousands.
    usable = orders if multiplier > 0.02 else [order for order in orders if order == int(order)]
    return to_epsilon({order: steps * poisson_rdp(order, rate=rate, multiplier=multiplier) for order in usable}, delta)


def fixed_batch_rdp(order: int, *, rate: float, multiplier: float, looks: int = 1) -> float:
    """Rényi divergence of whole order α of one step on a batch of fixed size, drawn without replacement.

    log(1 + Σⱼ γʲ (α over j) ζ(j)) / (α − 1), j = 2 … α, for neighbours that differ in one record: Wang, Balle,
    Kasiviswanathan, AISTATS 2019. Of their two bounds on ζ the smaller counts. Never above the step without sampling.

    In a round of local steps a record of the batch is in up to `looks` of them, each with noise of its own, and the
    divergences of those add up. Steps without the record change nothing: they only process what is out already.
    """
    plain = looks * order / (2 * multiplier**2)
    if rate in (0, 1):
        return rate * plain
    j = np.arange(2, order + 1)
    terms = j * math.log(rate) + _log_binomial(order, j) + _log_ternary(order, multiplier, looks)
    return min(plain, _log_sum(np.concatenate([[0.0], terms])) / (order - 1))


def _log_ternary(order: int, multiplier: float, looks: int) -> np.ndarray:
    """log of bounds on ζ(j), j = 2 … order: the j-th moment of |p − q| / r over three neighbouring batches.

    Theorem 9: 2 e^((j−1) ε(j)) with ε(j) = looks · j / 2σ², at j = 2 also 4 (e^ε(2) − 1), for whatever has these
    divergences. Theorem 27: 4 √(B(2⌊j/2⌋) B(2⌈j/2⌉)), for a single Gaussian.
    """
    j = np.arange(2, order + 1)
    simple = math.log(2) + looks * j * (j - 1) / (2 * multiplier**2)
    simple[0] = min(simple[0], math.log(4) + _log_expm1(looks / multiplier**2))
    if looks > 1:
        return simple
    few = j[1:_MOST_MOMENTS]
    moments = _central_moments(multiplier)
    fine = math.log(4) + (moments[few // 2] + moments[(few + 1) // 2]) / 2
    simple[1:_MOST_MOMENTS] = np.minimum(simple[1:_MOST_MOMENTS], fine)
    return simple


@lru_cache(maxsize=64)
def _central_moments(multiplier: float) -> np.ndarray:
    """log B(2m), m = 0, 1, …: B(l) = E[(e^(μx − μ²/2) − 1)^l] over x ~ N(0, 1), μ = 1 / multiplier.

    As an integral of what is never negative: the alternating sum it equals loses all its digits for large noise.
    """
    mu, most = 1 / multiplier, _MOST_MOMENTS // 2 + 1
    step = 0.1
    x = np.arange(-14.0, 2 * most * mu + 14.0, step)
    with np.errstate(divide="ignore", over="ignore"):
        exponent = mu * x - mu * mu / 2
        # log|e^y − 1| is y + log(1 − e^−y) for large y, where e^y is infinite.
        log_gap = np.maximum(exponent, 0.0) + np.log(-np.expm1(-np.abs(exponent)))
    density = -x * x / 2 - math.log(math.sqrt(2 * math.pi))
    found = [_log_sum(2 * m * log_gap + density) + math.log(step) for m in range(1, most + 1)]
    return np.array([0.0, *found])


def fixed_batch_curve(multiplier: float, *, rate: float, steps: int, looks: int = 1) -> dict[float, float]:
    """Rényi divergences of `steps` batches of fixed size, each record in up to `looks` steps of its batch, by order."""
    return {
        float(order): steps * fixed_batch_rdp(order, rate=rate, multiplier=multiplier, looks=looks)
        for order in WHOLE_ORDERS
    }


def fixed_batch_epsilon(multiplier: float, *, rate: float, steps: int, delta: float, looks: int = 1) -> float:
    """ε of `steps` batches of fixed size, each record in up to `looks` steps of its batch.

    The exact one without sampling where that is smaller.
    """
    _check(delta=delta, steps=steps, multiplier=multiplier, rate=rate)
    if multiplier == 0:
        return math.inf
    sampled = to_epsilon(fixed_batch_curve(multiplier, rate=rate, steps=steps, looks=looks), delta)
    return min(sampled, gaussian_epsilon(multiplier, steps=looks * steps, delta=delta))


def to_epsilon(divergences: dict[float, float], delta: float) -> float:
    """The least ε that Rényi divergences prove: min over α of D + log(1 − 1/α) − log(δα)/(α − 1).

    Canonne, Kamath, Steinke 2020, proposition 12; Balle et al. 2020.
    """
    found = [
        value + math.log1p(-1 / order) - math.log(delta * order) / (order - 1) for order, value in divergences.items()
    ]
    return max(0.0, min(found))


def calibrate(target: float, epsilon_of: Callable[[float], float]) -> float:
    """The least noise multiplier, to one part in ten thousand, whose ε is at most `target`: never one that exceeds it.

    `epsilon_of` maps a multiplier to its ε, and falls.
    """
    if not 0 < target < math.inf:
        raise UsageError(f"epsilon must be a finite number > 0, got {target}; for no privacy leave out the defence")
    high = 1.0
    while epsilon_of(high) > target:
        high *= 2
        if high > _LARGEST_MULTIPLIER:
            raise UsageError(f"no noise multiplier up to 1e6 gives ε ≤ {target}; allow a larger ε, or fewer steps")
    low = high / 2 if high > 1 else 0.0
    while high - low > _EXCESS * high:
        middle = (low + high) / 2
        low, high = (low, middle) if epsilon_of(middle) <= target else (middle, high)
    return high


def _log_sum(exponents: np.ndarray) -> float:
    return float(np.asarray(logsumexp(exponents)))


def _log_expm1(value: float) -> float:
    return value + math.log(-math.expm1(-value))


def _log_binomial(n: int, k: np.ndarray) -> np.ndarray:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def _check(*, delta: float, steps: int, multiplier: float, rate: float = 1.0) -> None:
    if not 0 < delta < 1:
        raise UsageError(f"delta must be between 0 and 1, got {delta}; usual is less than one over the examples")
    if not isinstance(steps, int) or steps < 1:
        raise UsageError(f"steps must be a whole number ≥ 1, got {steps!r}")
    if not 0 <= multiplier < math.inf:
        raise UsageError(f"noise_multiplier must be a finite number ≥ 0, got {multiplier}")
    if not 0 <= rate <= 1:
        raise UsageError(f"sampling_rate must be between 0 and 1, got {rate}")
