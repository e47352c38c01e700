"""Summaries against numpy, the bootstrap against its own coverage."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from leakscope.errors import BadInputError, UsageError
from leakscope.metrics import success_curve, summarise


def test_numbers_agree_with_numpy():
    values = np.random.default_rng(0).normal(20, 4, size=101)
    found = summarise(torch.from_numpy(values))
    assert found.n == 101
    assert found.median == pytest.approx(np.median(values))
    assert found.mean == pytest.approx(values.mean())
    assert found.worst == pytest.approx(values.max())
    assert found.quantiles == pytest.approx({q: np.percentile(values, q) for q in (5, 25, 75, 95)})
    assert found.ci[0] < found.median < found.ci[1]


def test_worst_is_the_lowest_where_low_means_a_leak():
    assert summarise([0.3, 0.01, 0.2], higher_is_worse=False).worst == 0.01


def test_the_same_seed_gives_the_same_interval():
    values = [float(value) for value in range(20)]
    assert summarise(values, seed=3) == summarise(values, seed=3)
    assert summarise(values, seed=3, resamples=50).ci != summarise(values, seed=4, resamples=50).ci


def test_the_interval_covers_the_true_median_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    covered = 0
    for trial in range(200):
        low, high = summarise(rng.normal(0, 1, 40).tolist(), resamples=400, seed=trial).ci
        covered += low <= 0 <= high
    # 190 expected; the percentile bootstrap of a median errs by a few per cent at n = 40.
    assert 178 <= covered <= 200


def test_one_value_has_no_width():
    found = summarise([12.5])
    assert found.ci == (12.5, 12.5)
    assert found.n == 1


def test_large_samples_are_drawn_in_blocks():
    values = torch.linspace(0, 1, 30_001)
    found = summarise(values, resamples=100)
    assert found.ci[0] == pytest.approx(0.5, abs=0.02)
    assert found.ci[1] == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")]])
def test_missing_values_are_refused(values):
    with pytest.raises(BadInputError, match="count failed cells apart"):
        summarise(values)


@pytest.mark.parametrize("wrong", [{"confidence": 1.0}, {"resamples": 0}])
def test_settings_are_checked(wrong):
    with pytest.raises(UsageError, match="0 < confidence < 1"):
        summarise([1.0], **wrong)


def test_success_curve_counts_the_exposed():
    values = torch.tensor([10.0, 20.0, 30.0, 40.0])
    assert success_curve(values, [0, 20, 20.1, 50]) == [1.0, 0.75, 0.5, 0.0]
    assert success_curve(values, [5, 20], higher_is_worse=False) == [0.0, 0.5]
