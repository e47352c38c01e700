from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from leakscope.attacks import ats_study
from leakscope.attacks.dlg import dlg, dlg_adam
from leakscope.attacks.idlg import idlg
from leakscope.attacks.inverting_gradients import inverting_gradients
from leakscope.audits.cell import run_cell
from leakscope.data import load
from leakscope.errors import UnsuitableError, UsageError
from leakscope.matching.candidates import Pixels
from leakscope.matching.distances import L1, Cosine, SquaredL2
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.optimisers import LBFGS, SGD, Adam, three_drops
from leakscope.matching.penalties import TotalVariation
from leakscope.metrics import score
from leakscope.models import build
from leakscope.registry import ATTACKS
from leakscope.types import Knowledge, LocalTraining, Status
from tiny import batch_of, dense, seen_of

SIGNED_ADAM = Adam(lr=0.1, signed=True, schedule=three_drops)
# name: distance, optimiser, steps, TV weight, boxed, restarts, as published; rates of L-BFGS are ours.
STUDY = {
    "lbfgs-l2": (SquaredL2(), LBFGS(lr=1.0), 50, 1e-3, False, 2),
    "adam-cosine": (Cosine(), SIGNED_ADAM, 4800, 1e-4, True, 1),
    "lbfgs-cosine": (Cosine(), LBFGS(lr=0.1, signed=True), 300, 1e-4, True, 16),
    "adam-l1": (L1(), SIGNED_ADAM, 4800, 1e-4, True, 1),
    "adam-l2": (SquaredL2(), SIGNED_ADAM, 4800, 1e-4, True, 1),
    "sgd-cosine": (Cosine(), SGD(lr=0.01, momentum=0.9, signed=True, schedule=three_drops), 4800, 1e-4, True, 1),
}


@pytest.mark.parametrize("name", STUDY)
def test_the_studys_attacks_have_the_published_settings(name):
    distance, optimiser, steps, tv, box, restarts = STUDY[name]
    attack = ATTACKS[name]()
    assert isinstance(attack, GradientMatching)
    assert (attack.recipe.distance, attack.recipe.optimiser) == (distance, optimiser)
    assert (attack.steps, attack.recipe.penalties, attack.restarts) == (steps, (TotalVariation(tv),), restarts)
    assert attack.recipe.candidate == Pixels(begin="normal", normalised=True, box=box)
    assert attack.needs == {Knowledge.LABELS}
    assert attack.paper == ats_study.PAPER


def test_dlg_and_idlg_have_the_published_settings():
    for attack in (dlg(), idlg()):
        assert (attack.recipe.distance, attack.steps) == (SquaredL2(), 300)
        assert attack.recipe.optimiser == LBFGS(lr=1.0, inner=20, history=100)
        assert (attack.recipe.candidate, attack.recipe.penalties) == (Pixels(begin="normal", box=False), ())
        assert attack.needs == frozenset()


def test_inverting_gradients_as_published_and_accelerated():
    paper = inverting_gradients(schedule="paper")
    assert (paper.recipe.optimiser, paper.steps, paper.recipe.penalties) == (SIGNED_ADAM, 4800, (TotalVariation(1e-4),))
    fast = inverting_gradients()
    assert fast.steps < paper.steps
    # A weight of one's own is taken as it is.
    assert fast.recipe.penalties == (TotalVariation(0.5, relative=True, fitted=True),)
    assert inverting_gradients(tv=0.5).recipe.penalties == (TotalVariation(0.5, relative=True),)
    assert (fast.recipe.distance, paper.recipe.distance) == (Cosine(), Cosine())
    assert inverting_gradients(schedule="paper", lr=0.0).recipe.optimiser == replace(SIGNED_ADAM, lr=0.0)
    with pytest.raises(UsageError, match="'accelerated' or 'paper', got 'fast'"):
        inverting_gradients(schedule="fast")
    with pytest.raises(UsageError, match="steps ≥ 1, got 0"):
        inverting_gradients(steps=0)


@pytest.mark.parametrize("attack", [dlg(steps=40), idlg(steps=40)], ids=["dlg", "idlg"])
@pytest.mark.parametrize("label", range(4))
def test_dlg_and_idlg_rebuild_image_and_label_from_the_update_alone(attack, label):
    batch = batch_of([label], seed=label)
    found = attack.reconstruct(seen_of(dense(), batch, scenario="E"), seed=1)
    assert found.status is Status.OK
    scores = score(found, batch)
    assert float(scores.psnr) > 35
    assert scores.label_correct.all()


def test_dlg_returns_the_soft_labels_its_loss_was_computed_with():
    seen = seen_of(dense(), batch_of([2]), scenario="E")
    attack = dlg(steps=5, retries=0)
    found = attack.reconstruct(seen)
    assert found.target_probabilities.shape == (1, 4)
    assert found.targets.tolist() == found.target_probabilities.argmax(-1).tolist()
    assert attack.evaluate(seen, found) == found.loss


def test_idlg_refuses_a_batch_where_its_size_is_known():
    with pytest.raises(UnsuitableError, match="one example per update, got 3 examples; use inverting-gradients"):
        idlg().reconstruct(seen_of(dense(), batch_of([1, 2, 3]), scenario="C"))


@pytest.mark.parametrize("lr", [0.5, 1e-4])
def test_local_steps_of_several_examples_are_simulated_and_undone_at_any_rate(lr):
    local = LocalTraining(lr=lr, steps=4, batch_size=1)
    batch = batch_of([1, 3], seed=4)
    found = dlg_adam(steps=250).reconstruct(seen_of(dense(), batch, scenario="A", local=local), seed=2)
    assert found.loss < 1e-3 * found.history[0]
    assert float(score(found, batch).psnr.min()) > 20


@pytest.mark.parametrize("attack", [dlg(steps=40), idlg(steps=40), dlg_adam(steps=200)], ids=lambda a: a.name)
def test_a_small_rate_does_not_hide_an_example_from_a_squared_distance(attack):
    batch = batch_of([2])
    seen = seen_of(dense(), batch, scenario="C", local=LocalTraining(lr=1e-4, steps=4))
    found = attack.reconstruct(seen, seed=1)
    assert found.status is Status.OK
    assert float(score(found, batch).psnr) > 35


# 6 × 6 pictures need no prior, no transformation and no generator; those attacks have tests of their own.
PLAIN = (*STUDY, "dlg", "dlg-adam", "idlg", "cpl", "inverting-gradients", "geng", "agic")


@pytest.mark.parametrize("name", PLAIN)
def test_every_attack_lowers_its_distance_and_stores_the_loss_of_its_iterate(name):
    seen = seen_of(dense(dtype=torch.float32), batch_of([2], dtype=torch.float32), scenario="A")
    attack = ATTACKS[name](steps=20, restarts=2)
    assert isinstance(attack, GradientMatching)
    found = attack.reconstruct(seen, seed=3)
    assert found.loss == attack.evaluate(seen, found)
    assert found.loss < 0.9 * found.history[0]
    assert found.inputs.dtype == torch.float32


@pytest.mark.slow
def test_knowing_more_never_hurts_on_deltas():
    model = build("mlp", num_classes=10, in_channels=1, image_size=8, hidden=[64], activation="sigmoid", seed=1)
    batch = load("digits", indices=[1, 5, 9, 12])
    local = LocalTraining(lr=1e-2, steps=4, batch_size=1)
    reached = {
        scenario: run_cell(model, batch, inverting_gradients(steps=200), local=local, scenario=scenario).scores
        for scenario in "ACD"
    }
    median = {scenario: float(scores.psnr.median()) for scenario, scores in reached.items() if scores is not None}
    assert median["A"] > median["C"] > median["D"] - 0.5
