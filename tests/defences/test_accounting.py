"""ε is what Opacus and dp-accounting print, for the sampler it was asked for, and never too small (P23)."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from leakscope.defences.accounting import (
    ORDERS,
    WHOLE_ORDERS,
    calibrate,
    fixed_batch_curve,
    fixed_batch_epsilon,
    fixed_batch_rdp,
    gaussian_delta,
    gaussian_epsilon,
    poisson_epsilon,
    poisson_rdp,
    to_epsilon,
)
from leakscope.defences.privacy_loss import tight_poisson_epsilon
from leakscope.errors import MissingExtraError, UsageError

# Multiplier, sampling rate, steps, δ; ε of Opacus 1.6.0 (RDPAccountant, our orders); ε of dp-accounting 0.6.0 for
# batches of fixed size and one record replaced (RdpAccountant, our whole orders).
GOLDEN = [
    (0.5, 0.01, 100, 1e-05, 8.03072535, 11.21267524),
    (0.6, 0.001, 10000, 1e-06, 3.99913051, 4.72493171),
    (0.7, 0.05, 200, 1e-05, 11.97726497, 17.67910906),
    (0.8, 0.1, 50, 0.0001, 7.86262915, 12.38069500),
    (1.0, 0.01, 1000, 1e-05, 2.10136527, 3.57611148),
    (1.0, 0.001, 100000, 1e-06, 2.00404559, 3.75048672),
    (2.0, 0.05, 2000, 1e-05, 5.92420338, 13.51019293),
    (1.1, 0.004, 3510, 1e-05, 1.20779891, 2.26088500),
    (1.3, 0.02, 5000, 1e-05, 6.41996588, 14.70314407),
    (1.5, 0.5, 20, 0.001, 6.86573081, 14.41034981),
    (2.0, 0.1, 1000, 1e-05, 8.94385013, 21.42359609),
    (2.0, 0.01, 50000, 1e-06, 6.41018678, 14.51743302),
    (3.0, 0.3, 100, 1e-05, 5.09481028, 11.21009159),
    (4.0, 0.01, 10000, 1e-05, 1.03549007, 2.22105847),
    (4.0, 1.0, 100, 1e-05, 14.13222616, 14.17669148),
    (5.0, 0.2, 500, 1e-08, 5.54294393, 12.12607218),
    (8.0, 0.05, 20000, 1e-05, 4.13114861, 9.43160353),
    (10.0, 0.9, 300, 1e-05, 7.95544758, 19.49481118),
    (20.0, 0.02, 1000, 1e-05, 0.10908457, 0.23278419),
    (0.4, 0.004, 10, 1e-05, 7.35578126, 10.29103632),
]
POISSON = [row[:5] for row in GOLDEN]


@pytest.mark.parametrize(("multiplier", "rate", "steps", "delta", "epsilon"), POISSON)
def test_epsilon_is_that_of_opacus(multiplier, rate, steps, delta, epsilon):
    assert poisson_epsilon(multiplier, rate=rate, steps=steps, delta=delta) == pytest.approx(epsilon, abs=1e-6)


@pytest.mark.parametrize(("multiplier", "rate", "steps", "delta", "_", "epsilon"), GOLDEN)
def test_epsilon_of_fixed_batches_is_that_of_dp_accounting_or_less(multiplier, rate, steps, delta, _, epsilon):
    found = to_epsilon(fixed_batch_curve(multiplier, rate=rate, steps=steps), delta)
    # Theirs leaves out that sampling never does harm.
    plain = to_epsilon({order: steps * order / (2 * multiplier**2) for order in WHOLE_ORDERS}, delta)
    assert found == pytest.approx(min(epsilon, plain), abs=1e-3) or found < min(epsilon, plain)
    if epsilon < plain:
        assert found == pytest.approx(epsilon, rel=1e-3)
    # Replacing a record is at least as visible as taking it away.
    assert found >= poisson_epsilon(multiplier, rate=rate, steps=steps, delta=delta, orders=WHOLE_ORDERS) - 1e-9


@pytest.mark.parametrize(("multiplier", "rate", "steps", "delta"), [row[:4] for row in GOLDEN])
def test_epsilon_against_the_libraries_themselves(multiplier, rate, steps, delta):
    accountants = pytest.importorskip("opacus.accountants", reason="needs the dp extra: pip install opacus")
    library = pytest.importorskip("dp_accounting", reason="needs pip install dp-accounting")
    rdp = pytest.importorskip("dp_accounting.rdp", reason="needs pip install 'dp-accounting>=0.6'")
    theirs = accountants.RDPAccountant()
    theirs.history = [(multiplier, rate, steps)]
    ours = poisson_epsilon(multiplier, rate=rate, steps=steps, delta=delta)
    assert ours == pytest.approx(theirs.get_epsilon(delta, alphas=list(ORDERS)), abs=1e-3)
    event = library.PoissonSampledDpEvent(rate, library.GaussianDpEvent(multiplier))
    # dp-accounting bounds broken orders from above, so that only whole ones agree.
    whole = rdp.RdpAccountant(list(WHOLE_ORDERS)).compose(event, steps).get_epsilon(delta)
    ours_whole = poisson_epsilon(multiplier, rate=rate, steps=steps, delta=delta, orders=WHOLE_ORDERS)
    assert ours_whole == pytest.approx(whole, abs=1e-3)
    assert ours <= rdp.RdpAccountant(list(ORDERS)).compose(event, steps).get_epsilon(delta) + 1e-3


@pytest.mark.parametrize(("multiplier", "rate", "steps", "delta", "epsilon"), POISSON[4:8])
def test_privacy_loss_distributions_agree_and_are_tighter(multiplier, rate, steps, delta, epsilon):
    pytest.importorskip("dp_accounting.pld", reason="needs pip install 'dp-accounting>=0.6'")
    tight = tight_poisson_epsilon(multiplier, rate=rate, steps=steps, delta=delta)
    assert 0.75 * epsilon < tight < epsilon


def test_without_dp_accounting_the_install_line_is_told(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "dp_accounting", None)
    with pytest.raises(MissingExtraError, match="pip install 'dp-accounting"):
        tight_poisson_epsilon(1.0, rate=0.1, steps=1, delta=1e-5)


@pytest.mark.parametrize(
    ("order", "rate", "multiplier"), [(1.1, 0.5, 1.5), (2.5, 0.5, 1.5), (3.7, 0.01, 0.6), (8, 0.2, 2.0)]
)
def test_divergences_are_the_integral_they_stand_for(order, rate, multiplier):
    def moment(x):
        without, with_it = stats.norm.pdf(x, 0, multiplier), stats.norm.pdf(x, 1, multiplier)
        return without * ((1 - rate) + rate * with_it / without) ** order

    found, _ = integrate.quad(moment, -12 * multiplier, order + 12 * multiplier, limit=500, points=[0.0, order])
    assert poisson_rdp(order, rate=rate, multiplier=multiplier) == pytest.approx(
        math.log(found) / (order - 1), rel=1e-7
    )


def test_broken_and_whole_orders_meet():
    for rate, multiplier in itertools.product((0.001, 0.3), (0.3, 1.0, 5.0)):
        whole = poisson_rdp(4, rate=rate, multiplier=multiplier)
        assert poisson_rdp(4 + 1e-7, rate=rate, multiplier=multiplier) == pytest.approx(whole, rel=1e-5)


def test_the_exact_curve_of_gaussian_noise_is_the_difference_of_two_gaussians():
    for mu, epsilon in ((0.3, 0.2), (1.0, 1.0), (3.0, 5.0)):
        grid = np.linspace(-15, 20, 400_001)
        gap = stats.norm.pdf(grid, mu) - math.exp(epsilon) * stats.norm.pdf(grid)
        assert gaussian_delta(mu, epsilon) == pytest.approx(np.trapezoid(np.maximum(gap, 0), grid), rel=1e-6)


def test_epsilon_where_every_step_sees_the_record_is_exact_and_below_the_renyi_one():
    for multiplier, steps in ((0.5, 1), (1.0, 1), (4.0, 100), (50.0, 10)):
        exact = gaussian_epsilon(multiplier, steps=steps, delta=1e-5)
        assert gaussian_delta(math.sqrt(steps) / multiplier, exact) <= 1e-5
        assert gaussian_delta(math.sqrt(steps) / multiplier, exact * (1 - 1e-6)) > 1e-5
        renyi = poisson_epsilon(multiplier, rate=1.0, steps=steps, delta=1e-5)
        assert 0.8 * renyi < exact < renyi
        assert fixed_batch_epsilon(multiplier, rate=1.0, steps=steps, delta=1e-5) == exact
    # T steps are one step with √T less noise.
    assert gaussian_epsilon(3.0, steps=9, delta=1e-6) == pytest.approx(gaussian_epsilon(1.0, steps=1, delta=1e-6))
    # ε where rounding would rule is the simple bound, which joins the exact curve.
    below, above = (gaussian_epsilon(1 / mu, steps=1, delta=1e-5) for mu in (0.999e4, 1.001e4))
    assert below < above < 1.01 * below


def test_so_much_noise_that_delta_alone_covers_it_gives_zero():
    assert gaussian_epsilon(1e6, steps=1, delta=1e-5) == 0.0
    assert poisson_rdp(3, rate=0.0, multiplier=1.0) == 0.0


def test_closed_form_at_rate_one():
    for order in (1.5, 2, 7):
        assert poisson_rdp(order, rate=1.0, multiplier=2.0) == order / 8
    assert fixed_batch_rdp(7, rate=1.0, multiplier=2.0) == 7 / 8
    # The formulas that sampling needs lead there too.
    assert poisson_rdp(7, rate=1 - 1e-12, multiplier=2.0) == pytest.approx(7 / 8, rel=1e-6)


@pytest.mark.parametrize("epsilon_of", [poisson_epsilon, fixed_batch_epsilon], ids=["poisson", "fixed batches"])
def test_epsilon_grows_with_steps_and_rate_and_falls_with_noise(epsilon_of):
    def grow(values, **fixed):
        found = []
        for value in values:
            settings = {"multiplier": 1.0, "rate": 0.1, "steps": 50, "delta": 1e-5} | fixed | value
            found.append(epsilon_of(settings.pop("multiplier"), **settings))
        assert all(a < b for a, b in itertools.pairwise(found)), found

    grow([{"steps": steps} for steps in (1, 2, 10, 100, 1_000)])
    grow([{"rate": rate} for rate in (0.001, 0.01, 0.1, 0.3)])
    grow([{"multiplier": value} for value in (20.0, 5.0, 1.0, 0.5, 0.3, 0.05, 0.01)])
    grow([{"delta": delta} for delta in (1e-2, 1e-5, 1e-8)])
    assert epsilon_of(0.0, rate=0.1, steps=1, delta=1e-5) == math.inf


def test_sampling_never_costs_privacy():
    for multiplier, rate in itertools.product((0.1, 0.5, 2.0, 10.0), (0.01, 0.5, 0.9)):
        sampled = fixed_batch_epsilon(multiplier, rate=rate, steps=30, delta=1e-5)
        assert sampled <= gaussian_epsilon(multiplier, steps=30, delta=1e-5)


@pytest.mark.parametrize("target", [0.1, 1.0, 8.0, 50.0])
def test_calibrated_noise_never_overshoots_and_is_the_least(target):
    for rate, steps in ((0.01, 1_000), (0.2, 50), (1.0, 10)):

        def epsilon_of(multiplier, rate=rate, steps=steps):
            return fixed_batch_epsilon(multiplier, rate=rate, steps=steps, delta=1e-5)

        found = calibrate(target, epsilon_of)
        assert epsilon_of(found) <= target
        assert epsilon_of(found * (1 - 2e-4)) > target


def test_impossible_settings_are_refused():
    for target in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(UsageError, match="epsilon must be a finite number > 0"):
            calibrate(target, lambda multiplier: 1.0)
    with pytest.raises(UsageError, match="no noise multiplier up to 1e6"):
        calibrate(1.0, lambda multiplier: 2.0)
    usual = {"rate": 0.1, "steps": 1, "delta": 1e-5}
    for wrong, told in (
        ({"delta": 0.0}, "delta must be between"),
        ({"delta": 1.0}, "delta must be between"),
        ({"steps": 0}, "steps must be a whole number"),
        ({"steps": 1.5}, "steps must be a whole number"),
        ({"rate": 1.5}, "sampling_rate must be between"),
    ):
        with pytest.raises(UsageError, match=told):
            poisson_epsilon(1.0, **usual | wrong)
        with pytest.raises(UsageError, match=told):
            fixed_batch_epsilon(1.0, **usual | wrong)
    with pytest.raises(UsageError, match="noise_multiplier must be a finite number ≥ 0"):
        gaussian_epsilon(-1.0, steps=1, delta=1e-5)
