"""What an attack on a canary shows of ε, by an exact interval, never exceeds what is claimed (P24)."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from leakscope.defences.accounting import gaussian_epsilon
from leakscope.defences.dp_fedavg import dp_fedavg
from leakscope.defences.dp_sgd import dp_sgd
from leakscope.defences.fed_cdp import fed_cdp
from leakscope.rng import generator
from leakscope.types import SharedUpdate
from tiny import step_of

TRIALS = 4_000
DELTA = 1e-5
CONFIDENCE = 0.99


def shown_epsilon(with_it, without_it):
    """A lower bound of ε from two samples of a statistic: threshold from one half, rates from the other."""
    half = TRIALS // 2
    best = max(
        (_bound(with_it[:half], without_it[:half], threshold), threshold) for threshold in with_it[:half].tolist()[::20]
    )
    return _bound(with_it[half:], without_it[half:], best[1])


def _bound(with_it, without_it, threshold):
    """log((TPR − δ) / FPR) at the worse ends of their Clopper-Pearson intervals."""
    hits, alarms, count = int((with_it > threshold).sum()), int((without_it > threshold).sum()), len(with_it)
    low = stats.beta.ppf((1 - CONFIDENCE) / 2, hits, count - hits + 1) if hits else 0.0
    high = stats.beta.ppf((1 + CONFIDENCE) / 2, alarms + 1, count - alarms)
    return math.log((low - DELTA) / high) if low > DELTA else 0.0


def shown_by_gaussian(with_it, without_it):
    """A lower bound of ε of noise that is claimed to be Gaussian, as tight as the test can be.

    The pair (FPR, TPR) of one threshold shows μ ≥ Φ⁻¹(TPR) − Φ⁻¹(FPR), and μ gives the whole curve of ε over δ: a
    threshold in the middle serves, where few trials tell rates well (Nasr et al., Tight Auditing of Differentially
    Private Machine Learning, USENIX Security 2023).
    """
    # The two worlds mirror each other: zero is the best threshold, known without a look at the samples.
    hits, alarms = (int((one > 0).sum()) for one in (with_it, without_it))
    low = stats.beta.ppf((1 - CONFIDENCE) / 2, hits, TRIALS - hits + 1)
    high = stats.beta.ppf((1 + CONFIDENCE) / 2, alarms + 1, TRIALS - alarms)
    mu = stats.norm.ppf(low) - stats.norm.ppf(high)
    return gaussian_epsilon(1 / mu, steps=1, delta=DELTA) if mu > 0 else 0.0


def power(claim):
    """What `shown_by_gaussian` shows at least, but for one time in a hundred, where the noise is what the claim says.

    Both rates are estimated with the standard error √(p(1 − p)/trials)/φ of their quantiles: the interval takes twice
    z of them, and the estimate may be off by √2 · z. Little of a small ε can be shown with so few trials.
    """
    mu, z = 1 / claim.noise_multiplier, stats.norm.ppf((1 + CONFIDENCE) / 2)
    error = math.sqrt(stats.norm.cdf(mu / 2) * stats.norm.sf(mu / 2) / TRIALS) / stats.norm.pdf(mu / 2)
    return gaussian_epsilon(1 / (mu - (2 + math.sqrt(2)) * z * error), steps=1, delta=DELTA)


def sums(defence, canary, *, members, first):
    """The sum of a step along the canary's direction, the canary being one of `members`."""
    rows = torch.zeros(members, 2, dtype=torch.float64)
    rows[0, 0] = canary
    found = [float(step_of(defence, {"a": rows}, seed=seed)["a"][0]) for seed in range(first, first + TRIALS)]
    return members * torch.tensor(found)


@pytest.mark.slow
@pytest.mark.parametrize("multiplier", [1.0, 2.0, 4.0])
@pytest.mark.parametrize(("make", "members"), [(dp_sgd, 1), (dp_sgd, 3), (fed_cdp, 1), (fed_cdp, 4)])
def test_a_canary_in_every_step_shows_no_more_than_is_claimed(make, members, multiplier):
    defence = make(norm=0.5, noise_multiplier=multiplier)
    # Other seeds for the other world: the same noise would be no test.
    worlds = sums(defence, 9.0, members=members, first=0), sums(defence, -9.0, members=members, first=TRIALS)
    claimed = defence.guarantee(examples=members, batch_size=members, steps=1)
    assert shown_epsilon(*worlds) <= claimed.epsilon
    assert power(claimed) < shown_by_gaussian(*worlds) <= claimed.epsilon


@pytest.mark.slow
def test_a_quarter_of_the_noise_would_be_seen():
    claimed = dp_sgd(0.5, 4.0).guarantee(examples=1, batch_size=1, steps=1).epsilon
    weak = dp_sgd(0.5, 1.0)
    worlds = sums(weak, 9.0, members=1, first=0), sums(weak, -9.0, members=1, first=TRIALS)
    assert shown_epsilon(*worlds) > claimed
    assert shown_by_gaussian(*worlds) > 2 * claimed


@pytest.mark.slow
def test_a_canary_in_some_steps_shows_no_more_than_is_claimed():
    defence, members = dp_sgd(0.5, 1.0), 2
    rng = generator(5, "canary")
    worlds = []
    for sign in (1, -1):
        total = torch.zeros(TRIALS, dtype=torch.float64)
        for step in range(3):
            drawn = (torch.rand(TRIALS, generator=rng) < 0.5).tolist()
            shift = 10 * TRIALS * (2 * step + (sign > 0))
            rows = torch.zeros(members, 2, dtype=torch.float64)
            for trial, is_in in enumerate(drawn):
                rows[0, 0] = sign * 9.0 if is_in else 0.0
                total[trial] += members * float(step_of(defence, {"a": rows}, seed=shift + trial)["a"][0])
        worlds.append(total)
    assert 0 < shown_epsilon(*worlds) <= defence.guarantee(examples=4, batch_size=2, steps=3).epsilon


@pytest.mark.slow
def test_a_client_shows_no_more_than_is_claimed():
    defence = dp_fedavg(0.5, 1.0)
    hook = defence.hooks().update

    def sent(sign, seed):
        update = SharedUpdate("delta", {"a": torch.tensor([sign * 7.0])})
        assert hook is not None
        found = hook(update, generator(seed, sign))
        assert isinstance(found, SharedUpdate)
        return float(found.tensors["a"])

    worlds = [torch.tensor([sent(sign, seed) for seed in range(TRIALS)]) for sign in (1, -1)]
    claimed = defence.guarantee(examples=1, batch_size=1, steps=1)
    assert 0.2 * claimed.epsilon < shown_epsilon(*worlds) <= claimed.epsilon
    assert 0.8 * claimed.epsilon < power(claimed) < shown_by_gaussian(*worlds) <= claimed.epsilon
