"""ε of clients that train locally: in how many steps of a round an example is, and what that adds up to."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import logsumexp

from leakscope.defences.accounting import fixed_batch_epsilon, fixed_batch_rdp, gaussian_epsilon
from leakscope.defences.chain import chain
from leakscope.defences.dp_fedavg import dp_fedavg
from leakscope.defences.dp_sgd import dp_sgd
from leakscope.defences.fed_cdp import fed_cdp
from leakscope.defences.privacy import LocalRound, guarantee_examples
from leakscope.defences.prune import prune
from leakscope.rng import generator
from leakscope.types import LocalTraining

DELTA = 1e-5
SIZES = {"examples": 200, "batch_size": 8, "steps": 30}
ONE_PASS = LocalTraining(lr=0.1, epochs=1, batch_size=2)
THREE_PASSES = LocalTraining(lr=0.1, epochs=3, batch_size=2)


@pytest.mark.parametrize(
    ("local", "size", "expected"),
    [
        (None, 7, LocalRound(1, 1, 7)),
        (LocalTraining(0.1, steps=3, batch_size=2), 4, LocalRound(3, 2, 2)),
        (LocalTraining(0.1, steps=4, batch_size=1), 1, LocalRound(4, 4, 1)),
        (LocalTraining(0.1, steps=2, batch_size=9), 4, LocalRound(2, 2, 4)),
        (LocalTraining(0.1, epochs=2, batch_size=3), 7, LocalRound(6, 2, 1)),
        (LocalTraining(0.1, epochs=2, batch_size=3, drop_last=True), 7, LocalRound(4, 2, 3)),
        (LocalTraining(0.1, epochs=2, batch_size=3, shuffle=True), 7, LocalRound(6, 2, 1)),
    ],
)
def test_a_round_counts_in_how_many_local_steps_one_example_can_be(local, size, expected):
    assert LocalRound.of(local, size) == expected


def test_no_shuffled_order_has_an_example_more_often_than_is_counted():
    local = LocalTraining(0.1, steps=7, batch_size=3, shuffle=True)
    most = LocalRound.of(local, 8).looks
    for seed in range(20):
        places = [place for step in local.order(8, generator(seed)) for place in step]
        assert max(map(places.count, range(8))) <= most


def test_local_steps_that_each_have_other_examples_cost_what_one_gradient_a_round_costs():
    plain, local = (dp_sgd(1.0, 2.0).guarantee(**SIZES, local=one) for one in (None, ONE_PASS))
    assert local.epsilon == plain.epsilon
    assert local.reconstruction == plain.reconstruction
    assert (local.steps, local.local_steps, local.sampling_rate) == (30 * 4, 4, 8 / 200)
    assert (plain.steps, plain.local_steps) == (30, 1)


def test_every_pass_over_the_batch_of_a_round_costs_again():
    found = [dp_sgd(1.0, 2.0).guarantee(**SIZES, local=one) for one in (ONE_PASS, THREE_PASSES)]
    assert found[1].epsilon > 1.5 * found[0].epsilon
    assert found[1].reconstruction[0.1] > found[0].reconstruction[0.1]
    assert found[1].epsilon == fixed_batch_epsilon(1.0, rate=8 / 200, steps=30, delta=DELTA, looks=3)
    # All examples in every step: nothing is gained by sampling, and ε is exact.
    whole = {"examples": 8, "batch_size": 8, "steps": 30}
    expected = gaussian_epsilon(1.0, steps=90, delta=DELTA)
    assert dp_sgd(1.0, 2.0).guarantee(**whole, local=THREE_PASSES).epsilon == expected
    # What is proven of reconstruction is that of as many gradients.
    whole["steps"] = 3
    three = dp_sgd(1.0, 40.0).guarantee(**whole, local=THREE_PASSES)
    nine = dp_sgd(1.0, 40.0).guarantee(examples=8, batch_size=8, steps=9)
    assert three.reconstruction == pytest.approx(nine.reconstruction)
    # One pass over all examples in 25 rounds, so two in 30; three steps with an example in each round of those.
    passes = dp_sgd(1.0, 2.0, sampling="passes").guarantee(**SIZES, local=THREE_PASSES)
    assert passes.epsilon == gaussian_epsilon(1.0, steps=2 * 3, delta=DELTA)


@pytest.mark.parametrize("looks", [1, 2, 5])
@pytest.mark.parametrize("multiplier", [0.7, 2.0])
def test_the_divergence_of_several_looks_is_at_least_that_of_the_mixtures_it_bounds(looks, multiplier):
    rate, shift = 0.1, math.sqrt(looks) / multiplier
    x = np.linspace(-30, 30, 60_001)

    def log_mixture(mean):
        return np.logaddexp(math.log1p(-rate) - x * x / 2, math.log(rate) - (x - mean) ** 2 / 2)

    for order in (2, 3, 8):
        # The record pulls to one side and its replacement to the other, or it does nothing at all.
        for one, other in ((shift / 2, -shift / 2), (shift, 0.0), (0.0, shift)):
            integrand = order * log_mixture(one) + (1 - order) * log_mixture(other) - math.log(2 * math.pi) / 2
            true = (float(logsumexp(integrand)) + math.log(x[1] - x[0])) / (order - 1)
            assert true <= fixed_batch_rdp(order, rate=rate, multiplier=multiplier, looks=looks)


def test_several_looks_by_the_published_sum():
    """Theorem 9 of Wang, Balle, Kasiviswanathan for divergences ε(j) = looks · j / 2σ²."""
    rate, sigma, looks, order = 0.05, 3.0, 2, 6
    epsilon = {j: looks * j / (2 * sigma**2) for j in range(2, order + 1)}
    total = 1 + rate**2 * math.comb(order, 2) * min(4 * math.expm1(epsilon[2]), 2 * math.exp(epsilon[2]))
    total += sum(rate**j * math.comb(order, j) * 2 * math.exp((j - 1) * epsilon[j]) for j in range(3, order + 1))
    found = fixed_batch_rdp(order, rate=rate, multiplier=sigma, looks=looks)
    assert found == pytest.approx(math.log(total) / (order - 1), rel=1e-12)


def test_fed_cdp_counts_on_the_noise_of_the_smallest_local_batch():
    local = LocalTraining(lr=0.1, epochs=1, batch_size=3)
    found = fed_cdp(4.0, 1.5).guarantee(**SIZES, local=local)
    # Eight examples in steps of 3, 3 and 2.
    expected = guarantee_examples(1.5 * math.sqrt(2), sampling="fixed-batch", delta=DELTA, **SIZES, local=local)
    assert found == expected
    # In passes the last round of 10 examples has two, and one step of them.
    sizes = {"examples": 10, "batch_size": 4, "steps": 3}
    uneven = fed_cdp(4.0, 1.5, sampling="passes").guarantee(
        **sizes, local=LocalTraining(lr=0.1, epochs=1, batch_size=4)
    )
    assert uneven.noise_multiplier == pytest.approx(1.5 * math.sqrt(2) / 2)


def test_a_client_as_a_whole_is_protected_round_by_round_however_it_trains():
    assert dp_fedavg(1.0, 2.0).guarantee(**SIZES, local=THREE_PASSES) == dp_fedavg(1.0, 2.0).guarantee(**SIZES)


def test_a_chain_hands_the_local_training_on():
    both = chain(dp_sgd(1.0, 2.0), prune(0.5)).guarantee(**SIZES, local=THREE_PASSES)
    assert both == dp_sgd(1.0, 2.0).guarantee(**SIZES, local=THREE_PASSES)
