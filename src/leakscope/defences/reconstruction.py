"""What noise proves of reconstruction: the most that any attacker can succeed in, given what a guess succeeds in.

Robustness to reconstruction after Balle, Cherubin, Hayes (S&P 2022) and Hayes, Mahloujifar, Balle (NeurIPS 2023). The
attacker knows everything but one record, and its prior: without the update it succeeds with probability κ at best,
whatever counts as a success. With the update it succeeds with at most the probability given here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from scipy.special import ndtr, ndtri

from leakscope.errors import UsageError

# A coin, one in ten, one in a hundred.
PRIORS = (0.5, 0.1, 0.01)


def gaussian_success(prior: float, *, mu: float) -> float:
    """Φ(Φ⁻¹(κ) + μ): the power of the best test of size κ between N(0, 1) and N(μ, 1).

    `mu` is how far the record moves what the noise is added to, over the noise, times √steps. It is measured from a
    record that adds *nothing*: the reference need only be independent of the record, so half the distance between two
    records is what counts, while ε counts the whole.
    """
    _check(prior)
    return 1.0 if math.isinf(mu) else float(ndtr(ndtri(prior) + mu))


def private_success(prior: float, *, epsilon: float, delta: float) -> float:
    """κ e^ε + δ, whatever the mechanism."""
    _check(prior)
    return 1.0 if epsilon > 700 else min(1.0, prior * math.exp(epsilon) + delta)


def divergence_success(prior: float, *, divergences: Mapping[float, float]) -> float:
    """min over α of (κ e^D)^((α − 1)/α), by Hölder's inequality, of Rényi divergences D by order."""
    _check(prior)
    exponents = [(math.log(prior) + value) * (order - 1) / order for order, value in divergences.items()]
    return math.exp(min(0.0, *exponents))


def _check(prior: float) -> None:
    if not 0 < prior < 1:
        raise UsageError(f"a guess succeeds with a probability between 0 and 1, got {prior}")
