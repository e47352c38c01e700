"""How much clients count: FedAvg by examples, FedBoosting by its two formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from leakscope.errors import BadInputError, UsageError
from leakscope.federated import FedAvg, FedBoosting, PlainAggregator
from leakscope.federated.fedboosting import boosting_weights
from leakscope.federated.strategy import check_weights_of
from leakscope.types import SealedUpdate
from small_federation import reply_of

VARIANTS = [FedBoosting(formula, training) for formula in ("released", "thesis") for training in (True, False)]  # type: ignore[arg-type]


def test_fedavg_weighs_by_examples():
    replies = [reply_of(0, 1.0, count=10), reply_of(1, 1.0, count=30)]
    assert FedAvg().weigh(replies, None) == [0.25, 0.75]


def test_every_variant_has_a_name_of_its_own():
    names = [variant.name for variant in VARIANTS] + [FedBoosting(mixing=0.9).name, FedAvg().name]
    assert names[:2] == ["fedboosting-released", "fedboosting-released-no-training-loss"]
    assert len(set(names)) == 6


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.name)
def test_equal_losses_give_equal_weights(variant):
    replies = [reply_of(number, 0.0, loss=0.7, count=10 * (number + 1)) for number in range(4)]
    assert variant.weigh(replies, torch.full((4, 4), 1.3)) == pytest.approx([0.25] * 4, abs=1e-15)


def test_the_written_formula_favours_the_worse_model_and_the_released_one_the_better():
    """The third model has ten times the loss of the others on everybody's held-out examples."""
    validation = torch.full((3, 3), 0.4)
    validation[2] = 4.0
    replies = [reply_of(number, 0.0, loss=0.5) for number in range(3)]
    for training in (True, False):
        released = FedBoosting("released", training).weigh(replies, validation)
        written = FedBoosting("thesis", training).weigh(replies, validation)
        assert released[2] < 0.06 < 0.4 < released[0] == pytest.approx(released[1])
        assert written[2] > 0.9 > written[0] == pytest.approx(written[1])


def test_a_larger_training_loss_counts_less_as_released_and_more_as_written():
    replies = [reply_of(0, 0.0, loss=0.5), reply_of(1, 0.0, loss=2.0)]
    validation = torch.full((2, 2), 1.0)
    assert FedBoosting("released").weigh(replies, validation) == pytest.approx([0.8, 0.2])
    assert FedBoosting("released", training_loss=False).weigh(replies, validation) == pytest.approx([0.5, 0.5])
    written = FedBoosting("thesis").weigh(replies, validation)
    assert written[1] > written[0]
    assert FedBoosting("thesis", training_loss=False).weigh(replies, validation) == pytest.approx([0.5, 0.5])


def softmax(values):
    raised = np.exp(np.asarray(values) - np.max(values))
    return raised / raised.sum()


@given(
    validation=st.lists(st.lists(st.floats(0.01, 10), min_size=3, max_size=3), min_size=3, max_size=3),
    training=st.lists(st.floats(0.01, 10), min_size=3, max_size=3),
)
def test_both_formulas_against_plain_numpy(validation, training):
    losses, fitness = np.array(validation), np.array(training)
    released = (1 / losses.mean(1)) * ((1 / fitness) / (1 / fitness).sum())
    expected = {"released": released / released.sum(), "thesis": softmax(softmax(fitness) * losses.sum(1))}
    for formula, weights in expected.items():
        found = boosting_weights(torch.from_numpy(losses), torch.from_numpy(fitness), formula=formula)  # type: ignore[arg-type]
        assert found == pytest.approx(weights.tolist(), rel=1e-6)
        assert math.fsum(found) == pytest.approx(1)


def test_a_loss_of_zero_does_not_divide_by_zero():
    replies = [reply_of(0, 0.0, loss=0.0), reply_of(1, 0.0, loss=1.0)]
    weights = FedBoosting().weigh(replies, torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    assert weights[0] == pytest.approx(1, abs=1e-6)


def test_bad_options_and_missing_losses_are_refused():
    with pytest.raises(UsageError, match=r"no formula 'release'\. Did you mean 'released'"):
        FedBoosting("release")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="mixing"):
        FedBoosting(mixing=0.4)
    with pytest.raises(UsageError, match="got none"):
        FedBoosting().weigh([reply_of(0, 0.0)], None)


@pytest.mark.parametrize("weights", [[0.5], [0.5, math.nan], [-0.5, 1.5], [0.5, 0.4]])
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(UsageError, match="fedavg must return one finite weight"):
        check_weights_of(FedAvg(), weights, [reply_of(0, 0.0), reply_of(1, 0.0)])


def test_the_plain_aggregator_averages_and_refuses_sealed_updates():
    replies = [reply_of(0, 1.0), reply_of(1, 5.0), reply_of(2, math.inf)]
    assert PlainAggregator().combine(replies, [0.25, 0.75, 0.0]).tensors["w"].tolist() == [4.0]
    sealed = type(replies[0])(3, 0, SealedUpdate("paillier", b"closed"), 10, 1.0)
    with pytest.raises(BadInputError, match="client 3 sent an update sealed by 'paillier'"):
        PlainAggregator().combine([*replies[:1], sealed], [0.5, 0.5])
