"""How much of an update a result explains: the formula, the scale, the labels, the local training."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from leakscope.attack import Attack, Watch
from leakscope.client import run_client
from leakscope.explanation import MatchedPart, explained_by, measure_fit
from leakscope.explanation.fit import attainable_share, best_match, compare, unrelated_share
from leakscope.explanation.unrelated import unrelated_inputs
from leakscope.observation.observe import observe
from leakscope.registry import get_attack
from leakscope.types import LocalTraining, Observation, Reconstruction, SharedUpdate, Status
from tiny import batch_of, convolutional, dense, seen_of, shared


def vector(*values: float) -> dict[str, Tensor]:
    return {"w": torch.tensor(values[:1]), "b": torch.tensor(values[1:])}


def test_the_share_is_one_minus_residual_over_energy_at_the_best_scale():
    # u = (3, 4, 0), û = (2, 0, 0): best s is 1.5, the residual 16 of 25.
    match = compare(vector(3.0, 4.0, 0.0), vector(2.0, 0.0, 0.0))
    assert match.explained == pytest.approx(1 - 16 / 25)
    assert match.cosine == pytest.approx(3 / 5)
    assert match.scale == pytest.approx(1.5)
    # With the declared length the residual is 1 + 16.
    assert match.as_declared == pytest.approx(1 - 17 / 25)


def test_an_opposite_update_explains_nothing():
    match = compare(vector(3.0, 4.0, 0.0), vector(-3.0, -4.0, 0.0))
    assert (match.explained, match.cosine, match.scale) == pytest.approx((0.0, -1.0, -1.0))
    assert match.as_declared == pytest.approx(1 - 4)


def test_nothing_explains_nothing():
    assert compare(vector(3.0, 4.0), vector(0.0, 0.0)).explained == 0
    assert compare(vector(3.0, 4.0), vector(float("nan"), 0.0)).explained == 0


def test_only_shared_tensors_are_compared():
    found = compare({"b": torch.tensor([1.0, 0.0])}, vector(100.0, 1.0, 0.0))
    assert found.explained == pytest.approx(1.0)


@pytest.mark.parametrize(
    "local",
    [
        None,
        LocalTraining(0.5, steps=3, batch_size=2),
        LocalTraining(0.5, steps=3, batch_size=2, momentum=0.9),
        LocalTraining(0.5, steps=3, batch_size=2, momentum=0.9, nesterov=True, weight_decay=0.1),
        LocalTraining(0.05, steps=3, batch_size=2, optimiser="adam"),
        LocalTraining(0.05, steps=3, batch_size=2, optimiser="adamw", weight_decay=0.1),
    ],
)
def test_the_truth_explains_everything_and_another_picture_does_not(local: LocalTraining | None):
    model, batch = dense(), batch_of([1, 2])
    seen = seen_of(model, batch, local=local)
    match = best_match(seen, batch.inputs, batch.targets)
    assert match.as_declared == pytest.approx(1.0, abs=1e-9)
    assert match.scale == pytest.approx(1.0, abs=1e-6)
    assert explained_by(seen, batch.inputs, batch.targets) == pytest.approx((1.0, 1.0), abs=1e-9)
    assert explained_by(seen, batch.inputs.flip(2), batch.targets)[0] < 0.99


@pytest.mark.parametrize(("wrong", "least"), [({"momentum": 0.0}, 1.5), ({"lr": 0.005}, 8.0), ({"steps": 1}, 2.0)])
def test_a_wrong_training_shows_in_the_length_at_the_truth(wrong: dict[str, float], least: float):
    model, batch = dense(), batch_of([1, 2])
    right = LocalTraining(0.05, steps=4, batch_size=2, momentum=0.9)
    seen = seen_of(model, batch, local=right)
    declared = replace(right, **wrong)
    other = replace(seen, local=declared, update=replace(seen.update, local=declared))
    match = best_match(other, batch.inputs, batch.targets)
    assert match.scale > least
    assert match.as_declared < 0.85 < match.explained


def test_unrelated_inputs_share_the_labels_and_explain_less_than_the_truth():
    model, batch = convolutional(classes=8), batch_of([3, 5])
    seen = seen_of(model, batch)
    same = unrelated_share(seen, batch.targets)
    other = unrelated_share(seen, torch.tensor([0, 1]))
    assert other < same < 1
    # The best of the draws, not their mean.
    each = [best_match(seen, inputs, batch.targets).explained for inputs in unrelated_inputs(seen, 2)]
    assert same == max(each)
    assert len(each) == 8


def test_unrelated_inputs_stay_inside_the_bounds_and_do_not_know_the_update():
    seen = replace(seen_of(convolutional(), batch_of([1])), bounds=(-1.0, 3.0))
    drawn = unrelated_inputs(seen, 2)
    assert all(one.shape == (2, 1, 6, 6) and one.dtype == seen.dtype for one in drawn)
    assert min(float(one.min()) for one in drawn) >= -1
    assert max(float(one.max()) for one in drawn) <= 3
    assert max(float(one.max()) for one in drawn) > 2
    halved = replace(seen, update=replace(seen.update, tensors={k: v / 2 for k, v in seen.update.tensors.items()}))
    assert all(torch.equal(a, b) for a, b in zip(drawn, unrelated_inputs(halved, 2), strict=True))
    assert len({float(one.std()) for one in drawn}) == len(drawn)


def test_shuffled_epochs_rightly_declared_are_explained_by_the_truth_in_any_order():
    model, batch = dense(), batch_of([1, 2, 3, 0])
    local = LocalTraining(0.05, epochs=2, batch_size=1, shuffle=True, momentum=0.9)
    run = run_client(model, batch, local=local, seed=4)
    assert isinstance(run.update, SharedUpdate)
    seen = observe(model, run.update, scenario="C", truth=batch)
    assert seen.order is None
    share = explained_by(seen, batch.inputs, batch.targets)[0]
    assert 0.9 < share < 1
    # What the unknown order costs is found without the truth.
    assert attainable_share(seen, batch.inputs, batch.targets) == pytest.approx(share, abs=0.08)
    assert attainable_share(seen_of(model, batch), batch.inputs, batch.targets) == 1


@dataclass(frozen=True)
class _Guess(Attack):
    """An attack of a user's own that returns what it is told."""

    inputs: Tensor
    targets: Tensor | None
    name: str = "guess"
    paper: str = "none"

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        return 0.0

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        return Reconstruction(self.inputs, self.targets, 0.0, Status.OK, (0.0,))


def test_an_attack_of_ones_own_gets_its_fit_and_its_status():
    model, batch = dense(), batch_of([1])
    seen = seen_of(model, batch)
    right = _Guess(batch.inputs, batch.targets).reconstruct(seen)
    assert right.status is Status.OK
    assert right.fit is not None
    assert right.fit.explained == pytest.approx(1.0)
    wrong = _Guess(batch.inputs.flip(2, 3) * 0.3, batch.targets).reconstruct(seen)
    assert wrong.status is Status.UNEXPLAINED
    assert wrong.fit is not None
    assert wrong.fit.diagnosis in wrong.notes
    several = _Guess(batch.inputs, batch.targets).reconstruct([seen, seen])
    assert [one.fit is not None for one in several] == [True, True]


def test_what_cannot_be_replayed_has_no_fit_and_keeps_its_status():
    model, batch = dense(), batch_of([1])
    seen = seen_of(model, batch)
    found = _Guess(batch.inputs, None).reconstruct(seen)
    assert (found.fit, found.status) == (None, Status.OK)
    broken = Reconstruction(batch.inputs * float("nan"), batch.targets, 0.0, Status.NAN)
    assert measure_fit(MatchedPart(seen), broken) is None


def test_a_scale_that_is_not_known_does_not_count():
    model, batch = dense(), batch_of([1])
    delta = shared(model, batch, local=LocalTraining(0.5, 1, 1))
    seen = observe(model, delta, scenario="D", truth=batch)
    assert seen.local is None
    assert explained_by(seen, batch.inputs, batch.targets)[0] == pytest.approx(1.0, abs=1e-6)
    found = get_attack("inverting-gradients", steps=150).reconstruct(seen)
    assert found.status is Status.OK, found.notes
