"""Confidence of inferred labels: 1 for what is proven, less for estimates, NaN where nothing is known."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from leakscope.client import share
from leakscope.matching.labels import infer_labels
from leakscope.matching.labels.confidence import Regime, calibrate
from leakscope.observation import observe
from leakscope.types import LocalTraining
from tiny import batch_of, dense, seen_of


@pytest.mark.parametrize("rate", [0.01, 0.3, 3.0])
def test_under_drift_a_confidence_of_one_is_right(rate):
    labels = [0, 0, 0, 0, 0, 0, 2, 3]
    for seed in range(6):
        local = LocalTraining(lr=rate, steps=8, batch_size=8)
        seen = seen_of(dense(seed=seed), batch_of(labels, seed=seed), scenario="C", local=local)
        guess = infer_labels(seen)
        left = list(labels)
        for label, confidence in zip(guess.labels.tolist(), guess.confidence.tolist(), strict=True):
            if label in left:
                left.remove(label)
            else:
                assert confidence < 1


def sure_of_an_absent_class() -> nn.Sequential:
    """Class 5 is never predicted, and one of its weights is large and negative, as training makes some."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = nn.Linear(24, 6)
        model = nn.Sequential(nn.Flatten(), nn.Linear(36, 24), nn.Sigmoid(), head).double()
    with torch.no_grad():
        head.bias[5] = -30.0
        head.weight[5, 3] = -4.0
    return model


@pytest.mark.parametrize("scenario", ["C", "D"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_weight_decay_proves_no_class_whether_it_is_known_or_not(scenario, momentum):
    # Decay alone makes the entry of that weight negative, in a row without any other gradient.
    local = LocalTraining(0.01, epochs=5, batch_size=4, momentum=momentum, weight_decay=5e-4)
    seen = seen_of(
        sure_of_an_absent_class(), batch_of([0, 0, 0, 3, 3, 3, 3, 3], shape=(1, 6, 6)), scenario=scenario, local=local
    )
    guess = infer_labels(seen)
    proven = {
        label for label, stated in zip(guess.labels.tolist(), guess.confidence.tolist(), strict=True) if stated == 1
    }
    assert proven == {0, 3}, "what occurs is proven, and nothing else"


def test_a_repeat_is_an_estimate_and_a_first_label_is_proven():
    guess = infer_labels(seen_of(dense(), batch_of([1, 1, 1, 3]), scenario="C"))
    assert guess.labels.tolist() == [1, 1, 1, 3]
    first, second, third, other = guess.confidence.tolist()
    assert first == other == 1.0
    assert 0.5 < third <= second < 1.0


def test_adam_and_smoothed_labels_are_unknown_and_say_why():
    adam = LocalTraining(lr=0.01, steps=4, batch_size=2, optimiser="adam")
    guess = infer_labels(seen_of(dense(), batch_of([1, 2]), scenario="C", local=adam))
    assert bool(guess.confidence.isnan().all())
    assert any("unknown (NaN): adam" in note for note in guess.notes)
    model, batch, loss = dense(), batch_of([1, 2]), nn.CrossEntropyLoss(label_smoothing=0.2)
    seen = observe(model, share(model, batch, loss=loss, seed=0), scenario="C", truth=batch, loss=loss)
    assert bool(infer_labels(seen).confidence.isnan().all())
    assert infer_labels(seen).labels.tolist() == [1, 2]


@pytest.mark.parametrize("regime", Regime)
def test_the_mapping_rises_and_stays_below_one(regime):
    found = calibrate(torch.linspace(0, 1, 101), regime)
    assert bool((found.diff() >= -1e-6).all())
    assert 0 < float(found[0]) <= float(found[-1]) < 1
