from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakscope.errors import UsageError
from leakscope.sealed.shares import apportion

WEIGHTS = st.lists(st.floats(0, 1e6), min_size=1, max_size=16).filter(any)


@pytest.mark.parametrize(("clients", "naive"), [(3, 99), (7, 98), (8, 96)])
def test_equal_clients_lose_nothing_where_plain_rounding_does(clients, naive):
    assert clients * round(100 / clients) == naive
    shares = apportion([1 / clients] * clients, 100)
    assert sum(shares.numbers) == shares.pieces
    assert 100 % shares.pieces == 0
    assert max(shares.numbers) - min(shares.numbers) <= 1


def test_what_is_left_goes_to_the_largest_remainders():
    # 13.4, 25.5 and 61.1 of 100 pieces: one is left after rounding down, and .5 is the largest remainder.
    assert apportion([0.134, 0.255, 0.611], 100).numbers == (13, 26, 61)


@given(WEIGHTS, st.sampled_from([64, 100, 2**18]))
def test_weights_sum_to_the_pieces_and_each_is_right_to_one_piece(weights, pieces):
    shares = apportion(weights, pieces)
    assert sum(shares.numbers) == shares.pieces
    assert pieces % shares.pieces == 0
    assert math.gcd(*shares.numbers) == 1
    assert shares.weight == pytest.approx(sum(weights), rel=1e-12)
    exact = sum(map(Fraction, weights))
    for number, weight in zip(shares.numbers, weights, strict=True):
        assert abs(Fraction(number, shares.pieces) - Fraction(weight) / exact) < Fraction(1, pieces)


@given(WEIGHTS)
def test_the_error_is_that_of_the_weights_really_used(weights):
    shares = apportion(weights, 1000)
    used = [shares.weight * number / shares.pieces for number in shares.numbers]
    found = shares.error(weights)
    assert found == pytest.approx([abs(a - b) for a, b in zip(used, weights, strict=True)], abs=1e-9 * shares.weight)


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -1.0], [math.nan], [math.inf, 1.0]])
def test_weights_that_cannot_be_shared_are_refused(weights):
    with pytest.raises(UsageError, match="weights ≥ 0 with a positive sum"):
        apportion(weights, 100)
