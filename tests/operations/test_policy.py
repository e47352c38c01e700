"""Policies: how they are written, what is refused, and when two are the same."""

from __future__ import annotations

import pytest

from leakscope.errors import UsageError
from leakscope.operations.library import LIBRARY, NUMBER_OF_OPERATIONS, first_equal
from leakscope.operations.policy import Policy, is_written_as_policy


def test_the_library_has_fifty_entries_and_twenty_eight_functions():
    assert len(LIBRARY) == NUMBER_OF_OPERATIONS == 50
    assert len({first_equal(index) for index in range(50)}) == 28


@pytest.mark.parametrize(
    "group",
    [
        [0, 29, 47],
        [9, 16, 17, 22, 30, 32, 33, 35, 46],
        [8, 23, 31, 36, 41, 44, 49],
        [24, 42, 43, 48],
        [40, 45],
        [20, 34],
        [28, 39],
    ],
)
def test_equal_operations_have_the_lowest_number(group):
    assert {first_equal(index) for index in group} == {min(group)}


@pytest.mark.parametrize(
    ("index", "name", "amount", "signed"),
    [
        (1, "contrast", 0.3333, True),
        (2, "rotate", 6.667, False),
        (3, "translate-x", 0.45317, True),
        (4, "sharpness", 0.0556, True),
        (5, "sharpness", 0.1667, True),
        (6, "shear-y", 0.0667, True),
        (7, "translate-y", 0.10070, True),
        (10, "shear-y", 0.1667, True),
        (11, "posterise", 6, False),
        (12, "colour", 0.1667, True),
        (13, "brightness", 0.2778, True),
        (14, "sharpness", 0.5, True),
        (15, "brightness", 0.5, True),
        (18, "contrast", 0.3889, True),
        (19, "sharpness", 0.2778, True),
        (20, "colour", 0.2778, True),
        (21, "translate-x", 0.25176, True),
        (24, "translate-y", 0.15106, True),
        (25, "sharpness", 0.3333, True),
        (26, "brightness", 0.3333, True),
        (27, "colour", 0.4444, True),
        (28, "solarise", 256, False),
        (37, "solarise", 142.22, False),
        (38, "brightness", 0.1667, True),
        (39, "colour", 0.0, True),
        (40, "solarise", 227.56, False),
    ],
)
def test_magnitudes_are_the_published_ones(index, name, amount, signed):
    entry = LIBRARY[index]
    assert (entry.name, entry.signed) == (name, signed)
    assert entry.amount == pytest.approx(amount, abs=5e-5 if amount < 1 else 5e-3)


@pytest.mark.parametrize("text", ["3-1-7", "3", "3-1-7+43-18-18", "28-39"])
def test_a_policy_is_written_as_it_was_read(text):
    policy = Policy.parse(text)
    assert str(policy) == text
    assert Policy.parse(policy) is policy
    assert hash(Policy.parse(text)) == hash(policy)
    assert is_written_as_policy(text)


def test_one_operation_may_be_a_number():
    assert Policy.parse(3) == Policy.parse("3")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("43-18-18", "24-18-18"),
        ("28-3-39-1", "3-1"),
        ("28-39", "28"),
        ("39", "28"),
        ("3+1", "1+3"),
        ("29+47", "0"),
        ("48-34+8", "23+24-20"),
        ("3+1+3+1", "1+3"),
    ],
)
def test_policies_that_do_the_same_are_equal_in_canonical_form(one, other):
    assert Policy.parse(one).canonical() == Policy.parse(other).canonical()
    assert Policy.parse(one) != Policy.parse(other)


@pytest.mark.parametrize(
    ("one", "other"), [("3-1", "1-3"), ("3+1", "3-1"), ("3+3+1", "3+1"), ("3", "21"), ("28+3", "3"), ("12", "20")]
)
def test_policies_that_differ_stay_different(one, other):
    assert Policy.parse(one).canonical() != Policy.parse(other).canonical()


@pytest.mark.parametrize("text", ["28-39", "39", "28+39"])
def test_what_does_nothing_says_so(text):
    assert Policy.parse(text).is_identity
    assert str(Policy.parse(text).canonical()) == "28"
    assert not Policy.parse(f"{text}-3").is_identity


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("50", "no operation 50; the library has numbers 0 to 49"),
        ("3-50", "no operation 50"),
        ("3-3-3-3-3-3-3", "at most 6 operations, got 7"),
        (-1, "negative number"),
        ("-1-3", "negative number"),
        ("3--1", "cannot read"),
        ("", "is empty"),
        ("3+", "is empty"),
        ("+3", "is empty"),
        ("3-", "cannot read"),
        ("3,1", "cannot read"),
        ("three", "cannot read"),
        ("3-1-x", "cannot read"),
        ("3.5", "cannot read"),
        ("٣", "cannot read"),
        (None, "cannot read"),
        (True, "cannot read"),
        (3.0, "cannot read"),
    ],
)
def test_what_is_no_policy_is_refused_with_the_remedy(text, complaint):
    with pytest.raises(UsageError, match=complaint) as refused:
        Policy.parse(text)
    assert any(remedy in str(refused.value) for remedy in ("3-1-7", "0 to 49"))


def test_an_empty_policy_cannot_be_made_either():
    for parts in ((), ((),), ((3,), ())):
        with pytest.raises(UsageError, match="is empty"):
            Policy(parts)
