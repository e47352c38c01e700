"""The Wilson interval against published values and its coverage."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakscope.errors import UsageError
from leakscope.federated import wilson_interval
from leakscope.federated.utility import difference_interval


@pytest.mark.parametrize(
    # Newcombe, Statistics in Medicine 1998, Table I, method 3.
    ("successes", "total", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_published_values(successes, total, low, high):
    assert wilson_interval(successes, total) == pytest.approx((low, high), abs=5e-5)


@given(total=st.integers(1, 2000), data=st.data())
def test_holds_the_proportion_and_stays_in_range(total, data):
    successes = data.draw(st.integers(0, total))
    low, high = wilson_interval(successes, total)
    assert 0 <= low <= successes / total + 1e-12
    assert successes / total - 1e-12 <= high <= 1
    mirrored = wilson_interval(total - successes, total)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


def test_mean_coverage_is_near_95_per_cent():
    total, coverage = 30, []
    for percent in range(5, 100, 5):
        p = percent / 100
        inside = 0.0
        for hits in range(total + 1):
            low, high = wilson_interval(hits, total)
            if low <= p <= high:
                inside += math.comb(total, hits) * p**hits * (1 - p) ** (total - hits)
        coverage.append(inside)
    assert sum(coverage) / len(coverage) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize(("successes", "total"), [(1, 0), (3, 2), (-1, 2)])
def test_impossible_counts_are_refused(successes, total):
    with pytest.raises(UsageError, match="0 ≤ successes ≤ total"):
        wilson_interval(successes, total)


def test_the_interval_of_a_difference_is_the_published_one():
    # Newcombe 1998, Table II, example (a): 56 of 70 against 48 of 80, method 10.
    first, second = wilson_interval(56, 70), wilson_interval(48, 80)
    found = difference_interval(56 / 70, 48 / 80, of_first=first, of_second=second)
    assert found == pytest.approx((0.0524, 0.3339), abs=5e-5)
    back = difference_interval(48 / 80, 56 / 70, of_first=second, of_second=first)
    assert back == pytest.approx((-found[1], -found[0])), "the other way round it is mirrored"
