"""Recognisers of text are audited like any other network, where the texts are granted."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn

from leakscope import audit
from leakscope.audits.config import Config
from leakscope.audits.execute import execute
from leakscope.audits.plan import make_plan
from leakscope.audits.sample_run import Sample, _Subject
from leakscope.errors import BadInputError, UnsuitableError
from leakscope.federated import measure_utility
from leakscope.models.crnn import ColumnSequence, SequenceReader
from leakscope.registry import get_attack
from leakscope.tasks import CTCText
from leakscope.types import Batch, Status

TASK = CTCText()
TEXTS = torch.tensor([[3, 1, 0], [2, 2, 4]])


def small_recogniser() -> nn.Module:
    """Reads pictures of 1×8×16 in eight steps; weights as large as DLG's, which tell more of the pictures."""
    layers = [
        ("conv", nn.Conv2d(1, 12, 3, stride=(2, 2), padding=1)),
        ("act", nn.Sigmoid()),
        ("columns", ColumnSequence()),
        ("rnn", SequenceReader(48, 24, layers=1)),
        ("fc", nn.Linear(48, 5)),
    ]
    model, rng = nn.Sequential(OrderedDict(layers)).double(), torch.Generator().manual_seed(0)
    for value in model.parameters():
        nn.init.uniform_(value, -0.5, 0.5, generator=rng)
    return model


def pictures(count: int) -> Batch:
    inputs = torch.rand(count, 1, 8, 16, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    return Batch(inputs, TEXTS[:count])


def test_a_picture_comes_back_from_the_gradient_of_a_recogniser() -> None:
    attack = get_attack("idlg", steps=15, retries=0)
    result = audit(small_recogniser(), pictures(1), attack, task=TASK, scenario="B", prior_alone=False)
    assert result.status is Status.OK
    assert float(result.scores.psnr.min()) > float(result.baseline_psnr.max()) + 20
    assert result.scores.label_correct.tolist() == [True]
    assert any("plain double backward" in note for note in result.notes)


def test_several_texts_and_local_steps_are_replayed_at_the_truth() -> None:
    """The loss of the attack is 0 at the private pictures, so client and replay compute the same."""
    from leakscope.client import share
    from leakscope.observation.observe import observe
    from leakscope.types import LocalTraining, Reconstruction

    model, batch = small_recogniser(), pictures(2)
    for local in (None, LocalTraining(lr=0.1, steps=3, batch_size=1)):
        seen = observe(model, share(model, batch, local=local, task=TASK), scenario="A", truth=batch, task=TASK)
        truth = Reconstruction(batch.inputs, batch.targets, 0.0, Status.OK)
        assert get_attack("inverting-gradients", replay="simulate").evaluate(seen, truth) < 1e-9


@pytest.mark.parametrize("scenario", ["C", "E"])
@pytest.mark.parametrize("name", ["inverting-gradients", "idlg", "gradinversion", "dlg", "cpl"])
def test_texts_are_not_inferred_and_the_reason_is_given(name: str, scenario: str) -> None:
    with pytest.raises(UnsuitableError, match=r"task CTCText has a text for each example.*use scenario A or B"):
        audit(small_recogniser(), pictures(1), name, task=TASK, scenario=scenario)


def words_config(**options) -> Config:
    return Config.model_validate(
        {
            "models": ["crnn-small"],
            "data": ["words-plain"],
            "victims": 1,
            "attacks": ["inverting-gradients"],
            "utility": None,
            **options,
        }
    )


def test_named_words_are_planned_and_run_with_their_task() -> None:
    plan = make_plan(words_config(scenarios=["C"]))
    assert plan.show_images
    outcome = execute(plan.attacks[0].to_json(), inputs=plan.inputs)
    assert outcome.status is Status.REFUSED
    assert "task CTCText" in outcome.record["error"]


def test_a_classifier_is_no_recogniser_and_the_other_way_round() -> None:
    with pytest.raises(BadInputError, match=r"task CTCText needs scores \[T, n, classes\]"):
        make_plan(words_config(models=["lenet5"]))
    with pytest.raises(BadInputError, match="logits"):
        make_plan(words_config(data=["sample-photos"], size=32))


def test_a_price_is_told_without_private_texts() -> None:
    cell = make_plan(words_config(scenarios=["B"])).attacks[0]
    sample = Sample.model_validate({"cell": cell.model_dump(), "shape": (3, 32, 100), "classes": 37})
    made_up = _Subject(sample, nn.Identity(), TASK).batch(6)
    TASK.check_targets(made_up.targets, 37)
    assert made_up.inputs.shape == (6, 3, 32, 100)
    assert _Subject(sample, nn.Identity(), None).batch(6).targets.shape == (6,)


def test_accuracy_under_a_defence_is_the_share_of_words_read() -> None:
    batch = pictures(2)
    model = small_recogniser()
    untrained = measure_utility(model, batch, batch, clients=1, rounds=1, batch_size=2, lr=1e-9, task=TASK, timed=False)
    trained = measure_utility(model, batch, batch, clients=1, rounds=250, batch_size=2, lr=0.5, task=TASK, timed=False)
    assert (untrained.accuracy, trained.accuracy) == (0.0, 1.0)
    assert trained.final_loss < 0.5 < untrained.final_loss
