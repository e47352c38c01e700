"""Victims follow from recipe, scale and seed, and are never those that something was tuned on."""

from __future__ import annotations

import pytest

from leakscope.errors import UsageError
from leakscope.reproduction import draw_victims
from leakscope.reproduction.victims import TUNED_ON

FROM = {"count": 6, "among": 300, "data": "cifar10", "batch_size": 4}


def test_the_same_question_has_the_same_answer_for_good():
    assert draw_victims("agic/table-1", "cpu", **FROM) == draw_victims("agic/table-1", "cpu", **FROM)
    # Another number of batches begins alike: more victims do not change those that were attacked before.
    assert (
        draw_victims("agic/table-1", "cpu", **{**FROM, "count": 2}) == draw_victims("agic/table-1", "cpu", **FROM)[:2]
    )
    assert draw_victims("a/b", "cpu", count=3, among=10, data="digits") == [[4], [6], [1]]


def test_every_argument_draws_others():
    base = draw_victims("agic/table-1", "cpu", **FROM)
    assert draw_victims("agic/table-2", "cpu", **FROM) != base
    assert draw_victims("agic/table-1", "paper", **FROM) != base
    assert draw_victims("agic/table-1", "cpu", seed=1, **FROM) != base


def test_none_twice_and_none_that_was_tuned_on():
    everyone = draw_victims("a/b", "cpu", count=192, among=200, data="cifar10")
    places = [place for batch in everyone for place in batch]
    assert len(set(places)) == 192
    assert not set(places) & TUNED_ON["cifar10"]
    with pytest.raises(UsageError, match="too few"):
        draw_victims("a/b", "cpu", count=194, among=200, data="cifar10")


def test_a_batch_has_no_class_twice_where_labels_are_given():
    labels = [place % 5 for place in range(100)]
    for batch in draw_victims("a/b", "cpu", count=20, among=100, data="digits", batch_size=5, labels=labels):
        assert len({labels[place] for place in batch}) == 5
