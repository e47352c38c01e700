"""Cells of the ATS recipes: those that two items show run once, and attacks are long enough to be evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.wrapper import MatchingWrapper
from leakscope.networks import NetworkKind
from leakscope.registry import attack_from_spec
from leakscope.reproduction.find import find_recipes

RECIPES = find_recipes(Path(__file__).resolve().parents[2])
OURS = {name: recipe for name, recipe in RECIPES.items() if name.startswith("ats_")}
# How many cells of the scale cpu belong to the recipe whose folder is shared.
SHARED = {
    "ats_one/figure-3": 12,
    "ats_one/figure-4": 12,
    "ats_two/figure-7": 12,
    "ats_one/figure-1": 6,
    "ats_one/table-2": 6,
    "ats_one/table-5": 6,
    "ats_two/table-1": 60,
    "ats_two/table-2": 24,
    "ats_two/figure-3": 4,
    "ats_two/figure-4": 6,
    "ats_one/figure-2": 40,
    "ats_one/figure-6c": 28,
    "ats_two/diversity": 32,
}


@pytest.mark.parametrize("name", SHARED)
def test_cells_that_two_items_show_are_the_same_cells(name):
    recipe = RECIPES[name]
    first = RECIPES[recipe.shares]
    known = [cell.spec for cell in first.cells(first.scale("cpu"))]
    assert sum(cell.spec in known for cell in recipe.cells(recipe.scale("cpu"))) == SHARED[name]


def test_every_attack_of_the_scale_cpu_is_long_enough_to_be_evidence():
    specs = {
        str(cell.spec["attack"])
        for recipe in OURS.values()
        for cell in recipe.cells(recipe.scale("cpu"))
        if cell.spec["kind"] == "attack"
    }
    assert len(specs) > 10
    for spec in specs:
        attack = attack_from_spec(spec)
        search = attack.search if isinstance(attack, MatchingWrapper) else attack
        assert isinstance(search, GradientMatching)
        # ConvNet and all ResNets have more than eight layers.
        assert search.steps >= search.recipe.optimiser.least_steps(NetworkKind.DEEP), spec


def test_recipes_that_share_are_priced_by_their_own_cells():
    assert sum(recipe.scale("cpu").minutes for recipe in OURS.values()) <= 221, "the share of both papers in the plan"
    assert len(OURS) == 22
