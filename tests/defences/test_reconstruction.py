"""What is proven of reconstruction is the best that a test can do, and no less than a guess."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from leakscope.defences.accounting import fixed_batch_curve, gaussian_epsilon
from leakscope.defences.reconstruction import PRIORS, divergence_success, gaussian_success, private_success
from leakscope.errors import UsageError

SHIFTS = (0.1, 0.5, 1.0, 3.0)


@pytest.mark.parametrize(("prior", "mu"), list(itertools.product(PRIORS, SHIFTS)))
def test_success_is_the_mass_of_the_likeliest_outcomes(prior, mu):
    grid = np.linspace(-12, 16, 2_000_001)
    step = grid[1] - grid[0]
    guess, update = stats.norm.pdf(grid) * step, stats.norm.pdf(grid, mu) * step
    # The attacker bets on the outcomes that speak most for the record, as many as a guess of κ allows.
    order = np.argsort(guess / np.maximum(update, 1e-300))
    chosen = order[np.cumsum(guess[order]) <= prior]
    assert gaussian_success(prior, mu=mu) == pytest.approx(update[chosen].sum(), abs=1e-5)


@pytest.mark.parametrize("prior", PRIORS)
def test_success_grows_with_the_shift_and_is_the_guess_without_one(prior):
    found = [gaussian_success(prior, mu=mu) for mu in (0.0, *SHIFTS, math.inf)]
    assert found[0] == pytest.approx(prior)
    assert found[-1] == 1.0
    assert all(a < b for a, b in itertools.pairwise(found))
    assert private_success(prior, epsilon=0.0, delta=0.0) == prior
    assert private_success(prior, epsilon=1.0, delta=1e-5) == pytest.approx(min(1.0, prior * math.e + 1e-5))
    assert private_success(prior, epsilon=math.inf, delta=1e-5) == 1.0


@pytest.mark.parametrize(("prior", "mu"), list(itertools.product(PRIORS, SHIFTS)))
def test_the_general_bounds_hold_for_gaussian_noise_and_are_not_far_off(prior, mu):
    best = gaussian_success(prior, mu=mu)
    epsilon = gaussian_epsilon(1 / mu, steps=1, delta=1e-5)
    assert private_success(prior, epsilon=epsilon, delta=1e-5) >= best
    by_order = {order / 10: order / 10 * mu**2 / 2 for order in range(11, 500)}
    assert best <= divergence_success(prior, divergences=by_order) <= min(1.0, 2.5 * best)


def test_divergences_of_no_update_leave_a_guess_and_sampling_helps():
    assert divergence_success(0.1, divergences={1e9: 0.0}) == pytest.approx(0.1)
    assert divergence_success(0.1, divergences={2.0: 1e6}) == 1.0
    often, seldom = (
        divergence_success(0.1, divergences=fixed_batch_curve(2.0, rate=rate, steps=20)) for rate in (0.5, 0.01)
    )
    assert 0.1 < seldom < 0.5 * often


@pytest.mark.parametrize("prior", [0.0, 1.0, -1.0, math.nan])
def test_a_guess_that_is_no_probability_is_refused(prior):
    with pytest.raises(UsageError, match="a guess succeeds with a probability"):
        gaussian_success(prior, mu=1.0)
