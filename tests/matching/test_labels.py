from __future__ import annotations

import pytest
import torch
from torch import nn

from leakscope.errors import UnsuitableError
from leakscope.matching import labels
from leakscope.matching.labels import AsGranted, Known, LastLayerSign, RowMinimum, Soft, infer_labels
from leakscope.models import build
from leakscope.rng import generator
from leakscope.threat import observe
from leakscope.types import Knowledge, LocalTraining, SharedUpdate
from tiny import batch_of, convolutional, dense, seen_of, shared

SEEDS = range(12)
LOCAL = LocalTraining(lr=1e-2, steps=4, batch_size=2)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("local", [None, LocalTraining(lr=0.1, steps=2)], ids=["gradient", "delta"])
@pytest.mark.parametrize("scenario", ["C", "D", "E"])
def test_the_label_of_one_example_is_exact_for_every_class(bias, local, scenario):
    for label in range(7):
        seen = seen_of(dense(classes=7, bias=bias), batch_of([label], seed=label), scenario=scenario, local=local)
        guess = infer_labels(seen, count=1)
        assert guess.labels.tolist() == [label]
        assert guess.rule == "last-layer sign"
        assert float(guess.confidence) == pytest.approx(1.0)


def test_features_of_both_signs_need_the_bias_gradient():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.Tanh(), nn.Linear(16, 6)).double()
    for label in range(6):
        assert infer_labels(seen_of(model, batch_of([label], seed=label), scenario="C")).labels.tolist() == [label]


@pytest.mark.parametrize("wanted", [[0, 1], [2, 5, 7], [1, 3, 4, 6, 9]])
def test_row_minimum_finds_different_labels(wanted):
    model = dense(classes=10)
    guess = labels.row_minimum(seen_of(model, batch_of(wanted[::-1]), scenario="C"), len(wanted))
    assert guess.labels.tolist() == wanted
    assert guess.confidence.tolist() == [1.0] * len(wanted)
    assert RowMinimum().resolve(seen_of(model, batch_of(wanted), scenario="C"), len(wanted)).tolist() == wanted


def test_row_minimum_refuses_more_examples_than_classes():
    seen = seen_of(dense(classes=3), batch_of([0, 1, 2, 0]), scenario="C")
    with pytest.raises(UnsuitableError, match="4 examples need 4 classes, the model has 3"):
        labels.row_minimum(seen, 4)


def counted(scenario: str, local: LocalTraining | None) -> float:
    """Share of labels found by counting, repeats included, over untrained networks."""
    right = 0
    for seed in SEEDS:
        model = build("lenet5", num_classes=10, in_channels=1, image_size=12, seed=seed).double()
        wanted = torch.randint(10, (8,), generator=generator(seed, "labels")).tolist()
        batch = batch_of(wanted, seed=seed, shape=(1, 12, 12))
        found = infer_labels(seen_of(model, batch, scenario=scenario, local=local), count=8).labels
        assert len(found) == 8
        assert found.tolist() == sorted(found.tolist())
        got, there = (torch.bincount(side, minlength=10) for side in (found, batch.targets))
        right += int(torch.minimum(got, there).sum())
    return right / (8 * len(SEEDS))


@pytest.mark.parametrize("scenario", ["C", "D"])
@pytest.mark.parametrize("local", [None, LOCAL], ids=["gradient", "delta"])
def test_counting_finds_repeated_labels_on_untrained_networks(scenario, local):
    # In D the rate behind a delta is unknown, and so is the scale of the gradient.
    assert counted(scenario, local) >= 0.95


def test_counting_always_returns_as_many_labels_as_examples():
    model = dense(classes=5)
    with torch.no_grad():
        model.get_parameter("3.bias").copy_(torch.tensor([9.0, 0, 0, 0, 0]))
    for wanted in ([0] * 8, [1] * 8, [0, 1, 1, 2, 4, 4, 4, 4]):
        assert len(infer_labels(seen_of(model, batch_of(wanted), scenario="C")).labels) == 8


def test_without_a_count_as_many_labels_as_negative_classes():
    seen = seen_of(dense(classes=10), batch_of([1, 4, 4, 8]), scenario="E")
    assert labels.estimate_count(seen) == 3
    assert infer_labels(seen).labels.tolist() == [1, 4, 8]


def test_no_bias_and_several_examples_falls_back_to_row_minimum():
    guess = infer_labels(seen_of(dense(classes=10, bias=False), batch_of([7, 2]), scenario="C"))
    assert guess.rule == "row minimum"
    assert guess.labels.tolist() == [2, 7]


def test_an_update_without_the_last_layer_is_refused_with_the_ways_out():
    model = dense()
    tensors = {k: v for k, v in shared(model, batch_of([1])).tensors.items() if k.startswith("1.")}
    seen = observe(model, SharedUpdate("gradient", tensors), scenario="E", input_shape=(1, 6, 6))
    with pytest.raises(UnsuitableError, match=r"no shared linear layer with 4 outputs; share the last layer.*dlg"):
        infer_labels(seen)


def test_rules_use_what_they_may_and_say_what_they_need():
    seen = seen_of(dense(), batch_of([3, 1]), scenario="A")
    blind = seen_of(dense(), batch_of([3, 1]), scenario="C")
    assert Known().needs == {Knowledge.LABELS}
    assert Known().resolve(seen, 2).tolist() == [3, 1]
    assert Soft().resolve(seen, 2) is None
    assert AsGranted().resolve(seen, 2).tolist() == [3, 1]
    assert AsGranted().resolve(blind, 2).tolist() == [1, 3]
    with pytest.raises(UnsuitableError, match="needs one example per update, got 2; use row minimum"):
        LastLayerSign().resolve(blind, 2)


def test_inference_changes_neither_model_nor_global_randomness():
    model = convolutional(norm=True).train()
    seen = seen_of(model, batch_of([1, 2]), scenario="C")
    before, state = {k: v.clone() for k, v in seen.model.state_dict().items()}, torch.random.get_rng_state()
    infer_labels(seen)
    assert all(torch.equal(value, before[name]) for name, value in seen.model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), state)
