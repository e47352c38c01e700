from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakscope.errors import UsageError
from leakscope.sealed.packing import Packing

USUAL = Packing(bound=16.0, fraction_bits=24, pieces=2**18)


def test_the_usual_slot_has_six_bytes_and_a_3072_bit_key_63_of_them():
    # 24 after the point, 4 before it, 18 of weights, a sign and a guard.
    assert USUAL.slot_bytes == 6
    assert (USUAL.slots(3072), USUAL.slots(2048)) == (63, 42)
    assert USUAL.largest == 2**28


@given(st.lists(st.sampled_from([-16.0, 16.0, 0.0, -1e-9, 2.0**-24, -(2.0**-24), 3.14159]), min_size=1, max_size=40))
def test_extremes_come_back_from_their_slots(values):
    packed = list(USUAL.pack(np.array(values), 7))
    assert len(packed) == -(-len(values) // 7)
    back = USUAL.unpack(iter(packed), len(values), slots=7)
    assert back.tolist() == [round(value * 2**24) for value in values]


@given(st.integers(1, 7), st.data())
def test_any_weighted_sum_within_the_pieces_stays_in_its_slots(count, data):
    """All extremes at once: neighbours of opposite sign, and all weight on one client."""
    extremes = st.lists(st.sampled_from([-16.0, 16.0, 0.0]), min_size=5, max_size=5)
    values = [np.array(data.draw(extremes)) for _ in range(count)]
    cuts = sorted(data.draw(st.lists(st.integers(0, 2**18), min_size=count - 1, max_size=count - 1)))
    numbers = np.diff([0, *cuts, 2**18])
    totals = [0]
    for value, number in zip(values, numbers.tolist(), strict=True):
        totals = [total + number * one for total, one in zip(totals, USUAL.pack(value, 5), strict=True)]
    found = USUAL.decode(USUAL.unpack(iter(totals), 5, slots=5), 2**18)
    expected = sum(number * value for number, value in zip(numbers, values, strict=True)) / 2**18
    assert found == pytest.approx(expected, abs=0)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_beyond_its_weights_is_noticed_on_both_sides(sign):
    packed = [sign * (USUAL.largest + 1)]
    sums = USUAL.unpack(iter(packed), 1, slots=5)
    assert sums.tolist() == [sign * (2**28 + 1)]
    with pytest.raises(OverflowError, match="larger than its weights"):
        USUAL.decode(sums, 1)
    assert USUAL.decode(sums, 2).tolist() == [sign * (2**28 + 1) / 2**25]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_that_does_not_fit_its_slots_is_noticed(sign):
    with pytest.raises(OverflowError, match="does not fit"):
        USUAL.unpack(iter([sign * (1 << (8 * 6 * 5))]), 1, slots=5)


def test_slots_too_wide_for_a_machine_word_are_refused():
    with pytest.raises(UsageError, match="need 62 bits a value, expected at most 56"):
        Packing(bound=16.0, fraction_bits=38, pieces=2**18)


def test_a_bound_below_one_needs_fewer_bits():
    assert Packing(bound=0.25, fraction_bits=20, pieces=2**18).slot_bytes == 5
