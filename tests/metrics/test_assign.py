"""Optimal assignment against brute force."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakscope.errors import BadInputError
from leakscope.metrics import assign, mse, mse_matrix
from leakscope.metrics.assign import solve


def least_total(cost: torch.Tensor) -> float:
    """Try every one-to-one assignment that uses the shorter side up."""
    table = cost if cost.shape[0] <= cost.shape[1] else cost.T
    choices = itertools.permutations(range(table.shape[1]), table.shape[0])
    return min(sum(table[row, column].item() for row, column in enumerate(choice)) for choice in choices)


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 5), columns=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_total_is_least_and_pairs_are_one_to_one(rows, columns, seed):
    cost = torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = solve(cost)
    used = found[found >= 0]
    assert len(used) == min(rows, columns)
    assert len(set(used.tolist())) == len(used)
    total = sum(cost[row, column].item() for row, column in enumerate(found.tolist()) if column >= 0)
    assert total == pytest.approx(least_total(cost), abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(order=st.permutations(range(5)), seed=st.integers(0, 10_000))
def test_noisy_copies_find_their_originals(order, seed):
    rng = torch.Generator().manual_seed(seed)
    truth = torch.rand(5, 3, 8, 8, generator=rng)
    noisy = truth[list(order)] + 0.05 * torch.randn(truth.shape, generator=rng)
    assert [order[column] for column in assign(noisy, truth).tolist()] == list(range(5))


def test_counts_may_differ_both_ways():
    truth = torch.eye(4)
    assert assign(truth[[3, 1]], truth).tolist() == [-1, 1, -1, 0]
    assert assign(truth[[2, 3, 0, 1]], truth[:2]).tolist() == [2, 3]
    assert assign(truth[:0], truth).tolist() == [-1, -1, -1, -1]


def test_matrix_rows_are_truths():
    truth, guess = torch.rand(3, 2, 4, 4), torch.rand(2, 2, 4, 4)
    found = mse_matrix(guess, truth)
    assert found.shape == (3, 2)
    for row, column in itertools.product(range(3), range(2)):
        expected = mse(guess[column : column + 1], truth[row : row + 1]).item()
        assert found[row, column].item() == pytest.approx(expected, rel=1e-6)


def test_a_broken_reconstruction_goes_last():
    truth = torch.eye(2)
    broken = torch.tensor([[float("nan"), 0.0], [0.0, float("inf")], [0.0, 1.0]])
    assert assign(broken, truth)[1].item() == 2
    assert mse_matrix(broken, truth)[:, :2].tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_equal_costs_keep_the_order():
    assert solve(torch.ones(4, 4)).tolist() == [0, 1, 2, 3]


def test_another_shape_is_refused():
    with pytest.raises(BadInputError, match=r"shape \[1, 4, 4\] cannot be compared with examples of shape \[1, 8, 8\]"):
        assign(torch.zeros(2, 1, 4, 4), torch.zeros(2, 1, 8, 8))
