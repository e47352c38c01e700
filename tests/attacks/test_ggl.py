from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from leakscope.attacks.ggl import ggl
from leakscope.client import share
from leakscope.defences.clip import clip
from leakscope.defences.noise import gaussian_noise
from leakscope.defences.prune import prune
from leakscope.errors import UnsuitableError, UsageError
from leakscope.matching.distances import ClippedFirst, PerTensor, Sparsified, SquaredL2
from leakscope.metrics import guess_baseline, score
from leakscope.observation.observe import observe
from leakscope.testing import check_attack, smallest_problem
from leakscope.types import Batch

pytest.importorskip("cma", reason="needs the extra prior")

SHORT = {"prior": "smooth", "steps": 60, "population": 20}
ADAM = {"prior": "smooth", "optimiser": "adam", "steps": 100}
L2 = PerTensor(SquaredL2())


def seen_of(problem, *, defence=None, batch=None):
    batch = batch or problem.batch
    return observe(problem.model, share(problem.model, batch, defence=defence, seed=1), scenario="C", truth=batch)


@pytest.mark.parametrize("options", [SHORT, ADAM], ids=["cma-es", "adam"])
def test_it_keeps_the_contract(options):
    check_attack(ggl(**options))


@pytest.mark.parametrize("defence", [clip(0.05), prune(0.8)], ids=["clip", "prune"])
def test_the_attacker_who_sees_the_defence_does_better(defence):
    problem = smallest_problem()
    seen = seen_of(problem, defence=defence)
    naive, aware = (ggl(**ADAM, aware=aware).reconstruct(seen) for aware in (False, True))
    assert float(score(aware, problem.batch).psnr) > float(score(naive, problem.batch).psnr) + 3
    assert float(score(aware, problem.batch).psnr) > float(guess_baseline(problem.batch)) + 6


def test_awareness_costs_nothing_where_there_is_no_defence():
    problem = smallest_problem()
    aware = ggl(**ADAM, aware=True).reconstruct(seen_of(problem))
    assert float(score(aware, problem.batch).psnr) > float(guess_baseline(problem.batch)) + 10


def knowing(attack, *defences) -> Any:
    for defence in defences:
        attack = defence.adapt(attack)
    return attack


def test_a_defence_tells_what_it_does():
    attack = ggl(**SHORT)
    assert attack.recipe.distance == L2
    assert knowing(attack, prune(0.9)).recipe.distance == Sparsified(L2)
    assert knowing(attack, clip(1.0)).recipe.distance == ClippedFirst(L2)
    assert knowing(attack, prune(0.9), clip(1.0)).recipe.distance == ggl(**SHORT, aware=True).recipe.distance
    noisy = knowing(attack, gaussian_noise(sigma=0.1))
    assert noisy.recipe == replace(attack.recipe, noise=0.1**2, joins_rounds=True), "the prior stays"


def test_several_victims_are_searched_for_each_by_itself():
    problem = smallest_problem()
    flipped = Batch(1 - problem.batch.inputs.flip(3), torch.tensor([0]))
    found = ggl(**SHORT).reconstruct([seen_of(problem), seen_of(problem, batch=flipped)], 5)
    for one, truth in zip(found, (problem.batch, flipped), strict=True):
        assert one.targets.tolist() == truth.targets.tolist()
        assert float(score(one, truth).psnr) > float(guess_baseline(truth)) + 3


def test_misuse_is_named():
    with pytest.raises(UsageError, match="leakscope prior train"):
        ggl()
    with pytest.raises(UsageError, match="'cma-es' or 'adam'"):
        ggl(prior="smooth", optimiser="bayes")
    problem = smallest_problem()
    pair = Batch(problem.batch.inputs.repeat(2, 1, 1, 1), torch.tensor([0, 1]))
    with pytest.raises(UnsuitableError, match="one example"):
        ggl(**SHORT).reconstruct(seen_of(problem, batch=pair))
