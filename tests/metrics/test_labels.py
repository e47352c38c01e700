"""Labels in order, and as a collection."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from leakscope.errors import BadInputError
from leakscope.metrics import label_accuracy, label_correct


def test_correct_is_per_example():
    assert label_correct(torch.tensor([1, 2, 3]), torch.tensor([1, 0, 3])).tolist() == [True, False, True]
    words = torch.tensor([[1, 2], [3, 4]])
    assert label_correct(words, torch.tensor([[1, 2], [3, 9]])).tolist() == [True, False]
    with pytest.raises(BadInputError, match="one prediction per target"):
        label_correct(torch.tensor([1]), torch.tensor([1, 2]))


@given(labels=st.lists(st.integers(0, 4), min_size=1, max_size=8), data=st.data())
def test_accuracy_ignores_order_and_counts_repeats_once_each(labels, data):
    truth = torch.tensor(labels)
    turned = torch.tensor(data.draw(st.permutations(labels)))
    assert label_accuracy(turned, truth) == 1.0
    assert label_accuracy(torch.full_like(truth, labels[0]), truth) == labels.count(labels[0]) / len(labels)


def test_accuracy_with_other_counts():
    truth = torch.tensor([1, 1, 2])
    assert label_accuracy(torch.tensor([1]), truth) == pytest.approx(1 / 3)
    assert label_accuracy(torch.tensor([2, 1, 1, 7, 8]), truth) == 1.0
    with pytest.raises(BadInputError, match="at least one true label"):
        label_accuracy(truth, truth[:0])
