from __future__ import annotations

from dataclasses import replace

import torch

from leakscope.attack import Effort
from leakscope.attacks.gradinversion import PAPER, gradinversion
from leakscope.matching.distances import SquaredL2
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.labels import DistinctFirst
from leakscope.matching.optimisers import Langevin
from leakscope.matching.penalties import BatchNormPrior, GroupConsistency, InputNorm, TotalVariation
from leakscope.metrics import score
from leakscope.testing import check_attack
from leakscope.types import Status
from tiny import batch_of, convolutional, dense, seen_of


def test_the_published_parts():
    attack = gradinversion()
    assert (attack.name, attack.paper, attack.recipe.distance) == ("gradinversion", PAPER, SquaredL2())
    assert isinstance(attack.recipe.optimiser, Langevin)
    assert (attack.recipe.labels, attack.restarts, attack.recipe.optimiser.noise) == (DistinctFirst(), 4, 0.2)
    kinds = [TotalVariation, InputNorm, BatchNormPrior, GroupConsistency]
    assert [type(one) for one in attack.recipe.penalties] == kinds
    assert [one.weight for one in attack.recipe.penalties] == [0.5, 1e-3, 0.1, 0.1]
    assert all(one.relative for one in attack.recipe.penalties)
    assert gradinversion(tv=0, norm=0, batch_norm=0, group=0).recipe.penalties == ()


def test_it_keeps_the_contract():
    check_attack(gradinversion(steps=100, seeds=2))


def test_exact_statistics_are_used_only_where_they_are_granted():
    model = convolutional(norm=True)
    batch = batch_of([1, 2], seed=1)
    attack = gradinversion(steps=30, seeds=2, batch_norm=1.0)
    histories = {
        scenario: attack.reconstruct(seen_of(model, batch, scenario=scenario), seed=1).history
        for scenario in ("A", "B", "C")
    }
    assert histories["A"] != histories["B"]
    assert histories["B"] == histories["C"]


def test_seeds_agree_more_with_the_group_term():
    batch = batch_of([1, 2], seed=1)
    seen = seen_of(convolutional(norm=True), batch, scenario="C")
    spread = []
    for group in (0.0, 1.0):
        last: list[torch.Tensor] = []
        attack = gradinversion(steps=40, seeds=3, group=group, noise=0.0)
        attack.reconstruct(seen, seed=1, watch=lambda step, images, distance, last=last: last.append(images.clone()))
        spread.append(float(last[-1].std(0).mean()))
    assert spread[1] < 0.8 * spread[0]


def test_the_group_term_acts_from_a_quarter_of_any_length():
    seen = seen_of(dense(), batch_of([1, 2], seed=1), scenario="C")
    with_term = gradinversion(group=1.0, seeds=2).with_effort(Effort(steps=40))
    assert isinstance(with_term, GradientMatching)
    without = with_term.revised(lambda recipe: replace(recipe, penalties=recipe.penalties[:-1]))
    # Resizing must give what asking for that length gives.
    assert with_term == gradinversion(steps=40, group=1.0, seeds=2)
    one, other = [], []
    for attack, trace in ((with_term, one), (without, other)):
        attack.reconstruct(seen, seed=1, watch=lambda step, images, distance, trace=trace: trace.append(images.clone()))
    same = [torch.equal(left, right) for left, right in zip(one, other, strict=True)]
    # The evaluation at a quarter, the 11th, is the first with the term, and the iterate after it the first to differ.
    assert same == [True] * 11 + [False] * 29


def test_repeated_labels_are_counted():
    batch = batch_of([1, 3, 3], seed=1)
    found = gradinversion(steps=100, seeds=2).reconstruct(seen_of(dense(), batch, scenario="C"), seed=1)
    assert found.status is Status.OK
    assert found.targets.tolist() == [1, 3, 3]
    assert score(found, batch).label_correct.all()
