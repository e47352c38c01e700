"""An attack that failed for a reason of its own is never status ok: that would look like protection."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from leakscope.client import share
from leakscope.errors import KnowledgeError, UnsuitableError, UsageError
from leakscope.matching.distances import Cosine, SquaredL2, distance_of_zero
from leakscope.matching.judgement import judge
from leakscope.matching.labels import infer_labels
from leakscope.observation.observe import observe
from leakscope.registry import get_attack, get_defence
from leakscope.types import LocalTraining, Reconstruction, SharedUpdate, Status
from tiny import batch_of, dense, seen_of, shared


def run_with(*, loss: float, start: float = 1.0) -> Reconstruction:
    return Reconstruction(torch.zeros(1, 1, 6, 6), None, loss, Status.OK, (start, loss))


def test_an_update_of_zeros_is_the_least_to_beat():
    target = {"w": torch.tensor([[3.0, 4.0]])}
    assert distance_of_zero(SquaredL2(), target) == 25
    assert distance_of_zero(Cosine(), target) == 1
    seen = seen_of(dense(), batch_of([1]))
    assert judge(seen, run_with(loss=24.9, start=1e4), assumed=1, nothing=25.0) == (Status.OK, ())
    status, notes = judge(seen, run_with(loss=25.0, start=1e4), assumed=1, nothing=25.0)
    assert status is Status.DIVERGED
    assert "stopped after 2 evaluations" in notes[0]
    # A long run may have met a defence: its failure is a measurement.
    long = replace(run_with(loss=25.0), history=(1e4, *[25.0] * 50))
    assert judge(seen, long, assumed=1, nothing=25.0) == (Status.OK, ())


@pytest.mark.parametrize("status", [Status.DIVERGED, Status.NAN])
def test_a_run_that_failed_says_how(status: Status):
    failed = replace(run_with(loss=2.0), status=status)
    kept, notes = judge(seen_of(dense(), batch_of([1])), failed, assumed=1, nothing=25.0)
    assert kept is status
    assert "no evidence" in notes[0]


def test_a_confident_network_does_not_make_a_run_that_never_began_look_like_protection():
    model = dense(classes=8)
    with torch.no_grad():
        model.get_parameter("3.bias")[1] = 12.0
    seen = seen_of(model.float(), batch_of([1], dtype=torch.float32), scenario="C")
    for seed in range(2):
        found = get_attack("dlg", steps=5, retries=0).reconstruct(seen, seed)
        assert found.status is not Status.OK or found.loss < distance_of_zero(
            SquaredL2(), {name: value[None] for name, value in seen.update.tensors.items()}
        )


@pytest.mark.parametrize("name", ["inverting-gradients", "agic", "dlg-adam"])
def test_a_delta_declared_as_a_gradient_ends_with_a_reason(name: str):
    model, batch = dense(classes=8), batch_of([1])
    delta = shared(model, batch, local=LocalTraining(0.01, 1, 1))
    wrong = SharedUpdate("gradient", delta.tensors, num_examples=1)
    seen = observe(model, wrong, scenario="C", truth=batch)
    assert seen.contradictions
    assert set(seen.contradictions) <= set(seen.notes)
    found = get_attack(name, steps=30).reconstruct(seen)
    assert found.status is not Status.OK
    assert any("signs reversed" in note for note in found.notes)


@pytest.mark.parametrize("seed", range(20))
def test_what_a_defence_may_have_caused_is_no_contradiction(seed: int):
    model, batch = dense(classes=8), batch_of([1])
    noisy = share(model, batch, defence=get_defence("gaussian-noise", sigma=0.2), seed=seed)
    assert observe(model, noisy, scenario="C", truth=batch).contradictions == ()


def test_one_example_assumed_where_the_update_shows_four_ends_with_a_reason():
    model, batch = dense(classes=8), batch_of([1, 2, 3, 4])
    seen = observe(model, shared(model, batch), scenario="E", input_shape=(1, 6, 6))
    found = get_attack("idlg", steps=3, retries=0).reconstruct(seen)
    assert found.status is not Status.OK
    assert any("labels of at least 4 examples" in note for note in found.notes)
    one = observe(model, shared(model, batch_of([1])), scenario="E", input_shape=(1, 6, 6))
    alone = get_attack("idlg", steps=30).reconstruct(one)
    assert alone.status is Status.OK
    assert not any("labels of at least" in note for note in alone.notes)


def test_what_the_scenario_grants_but_the_update_lacks_is_not_known():
    model, batch = dense(), batch_of([1])
    delta = shared(model, batch, local=LocalTraining(0.5, 4, 1))
    silent = SharedUpdate("delta", delta.tensors, num_examples=1)
    seen = observe(model, silent, scenario="C", truth=batch)
    for attack in (get_attack("agic", steps=2), get_attack("inverting-gradients", steps=2, replay="simulate")):
        with pytest.raises(KnowledgeError, match=r"does not carry.*local=LocalTraining"):
            attack.reconstruct(seen)
    told = observe(model, delta, scenario="C", truth=batch)
    assert get_attack("agic", steps=2).reconstruct(told).inputs.shape == (1, 1, 6, 6)


def test_a_number_of_examples_that_cannot_be_read_off_is_asked_for():
    model = dense()
    update = shared(model, batch_of([1]))
    partial = replace(update, tensors={name: value for name, value in update.tensors.items() if name.startswith("1.")})
    seen = observe(model, partial, scenario="E", input_shape=(1, 6, 6))
    with pytest.raises(UnsuitableError, match="give num_examples="):
        get_attack("dlg", steps=2).reconstruct(seen)


@pytest.mark.parametrize(
    "options", [{"num_examples": 1.5}, {"num_examples": 0}, {"lr": -1.0}, {"lr": float("nan")}, {"tv": float("nan")}]
)
def test_options_without_sense_are_refused(options: dict[str, float]):
    with pytest.raises(UsageError, match=r"needs a .*, got"):
        get_attack("inverting-gradients", **options)


def test_a_generator_without_width_is_refused():
    with pytest.raises(UsageError, match="width ≥ 1, got 0"):
        get_attack("grnn", width=0)


def test_a_granted_label_is_used_where_none_can_be_read():
    model, batch = dense(classes=8), batch_of([5])
    update = shared(model, batch)
    partial = replace(update, tensors={key: value for key, value in update.tensors.items() if key.startswith("1.")})
    seen = observe(model, partial, scenario="B", truth=batch)
    found = get_attack("idlg", steps=2, retries=0).reconstruct(seen)
    assert found.targets is not None
    assert found.targets.tolist() == [5]


def test_no_labels_cannot_be_asked_for():
    with pytest.raises(UsageError, match="got 0"):
        infer_labels(seen_of(dense(), batch_of([1])), count=0)
