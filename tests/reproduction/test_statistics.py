"""Intervals agree with SciPy's."""

from __future__ import annotations

from statistics import fmean, median

import numpy as np
import pytest
from scipy import stats

from leakscope.errors import UsageError
from leakscope.reproduction.statistics import (
    bootstrap_interval,
    correlation_interval,
    mean_interval,
    paired_interval,
    share_interval,
    welch_interval,
)

OURS = [14.2, 15.9, 13.1, 18.4, 16.6, 12.2]
OTHERS = [13.8, 14.1, 13.3, 16.0, 15.9, 12.0]


def test_student_of_a_mean():
    found = mean_interval(OURS)
    low, high = stats.t.interval(0.95, len(OURS) - 1, loc=np.mean(OURS), scale=stats.sem(OURS))
    assert found.value == pytest.approx(np.mean(OURS))
    assert found.interval == pytest.approx((low, high))
    assert found.n == 6


def test_student_of_pairs():
    found = paired_interval(OURS, OTHERS)
    known = stats.ttest_rel(OURS, OTHERS).confidence_interval(0.95)
    assert found.interval == pytest.approx((known.low, known.high))
    assert found.value > 0


def test_welch_of_unrelated_units():
    found = welch_interval(OURS, OTHERS[:4])
    known = stats.ttest_ind(OURS, OTHERS[:4], equal_var=False).confidence_interval(0.95)
    assert found.interval == pytest.approx((known.low, known.high))
    assert found.n == 10


def test_fisher_of_a_correlation():
    found = correlation_interval(OURS, OTHERS)
    known = stats.pearsonr(OURS, OTHERS)
    assert found.value == pytest.approx(known[0])
    assert found.interval == pytest.approx(tuple(known.confidence_interval(0.95)))


def test_wilson_of_a_share():
    known = stats.binomtest(8, 10).proportion_ci(0.95, method="wilson")
    assert share_interval(8, 10).interval == pytest.approx((known.low, known.high))


def test_bootstrap_of_a_median():
    values = np.random.default_rng(0).normal(size=40).tolist()
    known = stats.bootstrap((values,), np.median, method="percentile", rng=1).confidence_interval
    assert bootstrap_interval(values, median).interval == pytest.approx((known.low, known.high), abs=0.05)
    assert bootstrap_interval(values, median) == bootstrap_interval(values, median)
    assert bootstrap_interval(values, fmean, seed=1) != bootstrap_interval(values, fmean)


def test_what_tells_nothing_says_so():
    assert mean_interval([3.0]).interval is None
    assert correlation_interval([1, 2, 3], [3, 2, 1]).interval is None
    assert correlation_interval([1, 1, 1, 1], [3, 2, 1, 0]) == correlation_interval([3, 2, 1, 0], [1, 1, 1, 1])
    assert correlation_interval([1, 1, 1, 1], [3, 2, 1, 0]).interval == (-1.0, 1.0)
    for wrong in ([], [float("nan")]):
        with pytest.raises(UsageError, match="finite"):
            mean_interval(wrong)
    with pytest.raises(UsageError, match="as many"):
        paired_interval([1.0], [1.0, 2.0])
