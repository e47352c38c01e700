"""From a fit to a status, with and without the truth, and whether a run was finished."""

from __future__ import annotations

import pytest

from leakscope.explanation import is_unfinished, judge_with_truth, settle_status
from leakscope.explanation.verdict import gain
from leakscope.registry import get_attack
from leakscope.types import Fit, Status
from tiny import batch_of, dense, seen_of


def test_the_gain_is_relative_to_what_unrelated_inputs_leave():
    assert gain(0.9, 0.5) == pytest.approx(0.8)
    assert gain(0.995, 0.99) == pytest.approx(0.5)
    assert gain(0.2, 0.5) == pytest.approx(-0.6)
    assert gain(1.0, 1.0) <= 1


@pytest.mark.parametrize(
    ("fit", "expected"),
    [
        (Fit(0.97, 0.98, 0.7), Status.OK),
        (Fit(0.97, 0.98, 0.96), Status.UNEXPLAINED),
        (Fit(0.5, 0.7, 0.4), Status.UNEXPLAINED),
        (Fit(0.97, 0.98, 0.7, diagnosis="explained 40 % …"), Status.UNEXPLAINED),
        (None, Status.OK),
    ],
)
def test_ok_means_explained(fit: Fit | None, expected: Status):
    assert settle_status(Status.OK, fit) is expected
    assert settle_status(Status.DIVERGED, fit) is Status.DIVERGED


def test_an_unknown_order_lowers_the_bar_by_what_it_costs():
    fit = Fit(0.8, 0.9, 0.7)
    assert settle_status(Status.OK, fit) is Status.UNEXPLAINED
    assert settle_status(Status.OK, fit, attainable=0.88) is Status.OK
    assert settle_status(Status.OK, Fit(0.7, 0.8, 0.7), attainable=0.7) is Status.UNEXPLAINED


@pytest.mark.parametrize(
    ("fit", "expected"),
    [
        # Little, but more than unrelated pictures, and the description is right: a measurement.
        (Fit(0.5, 0.7, 0.4, truth=1.0, diagnosis="explained …"), Status.OK),
        (Fit(0.41, 0.64, 0.4, truth=1.0), Status.UNEXPLAINED),
        (Fit(0.30, 0.5, 0.4, truth=1.0), Status.UNEXPLAINED),
        # A defence hid the truth as well: as good as the truth is the best there is.
        (Fit(0.05, 0.2, 0.04, truth=0.05), Status.OK),
        (Fit(0.00, 0.0, 0.04, truth=0.09), Status.UNEXPLAINED),
        (Fit(0.98, 0.99, 0.995, truth=0.9951), Status.UNEXPLAINED),
    ],
)
def test_with_the_truth_at_hand(fit: Fit, expected: Status):
    for status in (Status.OK, Status.UNEXPLAINED):
        assert judge_with_truth(status, fit) is expected
    for status in (Status.UNFINISHED, Status.DIVERGED, Status.NAN):
        assert judge_with_truth(status, fit) is status
    assert judge_with_truth(Status.OK, None) is Status.OK


def test_a_distance_that_still_falls_is_unfinished_unless_the_update_is_explained():
    falling, settled = [1.0 / (1 + step) for step in range(100)], [1.0, *[0.5] * 99]
    halving = [0.97**step for step in range(100)]
    poor, good = Fit(0.6, 0.7, 0.4), Fit(0.99, 0.99, 0.4)
    assert is_unfinished(halving, poor, steps=100, least=20)
    assert not is_unfinished(halving, good, steps=100, least=20)
    assert not is_unfinished(settled, poor, steps=100, least=20)
    assert not is_unfinished(falling, poor, steps=100, least=20)
    assert not is_unfinished((0.1,), poor, steps=None, least=20)


def test_too_few_steps_are_unfinished_unless_the_update_fits():
    assert is_unfinished([1.0] * 5, Fit(0.9, 0.95, 0.4), steps=5, least=20)
    assert is_unfinished([1.0] * 5, None, steps=5, least=20)
    assert not is_unfinished([1.0] * 5, Fit(0.999, 0.999, 0.4), steps=5, least=20)


@pytest.mark.parametrize("name", ["inverting-gradients", "adam-l2", "agic", "gradinversion"])
def test_five_steps_are_no_evidence(name: str):
    seen = seen_of(dense(classes=8), batch_of([1]))
    found = get_attack(name, steps=5).reconstruct(seen)
    assert found.status is not Status.OK
    assert found.fit is not None
