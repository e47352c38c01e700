from __future__ import annotations

import argparse

import pytest

from leakscope.matching.optimisers import Adam
from leakscope.networks import NetworkKind


def setting(script, **changes):
    values = {"network": "resnet20-4", "normalised": True, "signed": False, "rate": "held", "beta": 50.0}
    return script.Setting(**{**values, "steps": 1_000, "size": 1, **changes})


def test_the_rate_is_held_as_in_a_run_of_six_thousand(load):
    script = load("agic_layer_weights")
    held = script.attack(setting(script)).recipe.optimiser
    assert isinstance(held, Adam)
    assert (held.lr, held.signed) == (0.1, False)
    factors = [held.schedule(step, 1_000) for step in (0, 999, 2_248, 2_249)]
    assert factors == pytest.approx([1.0, 1.0, 1.0, 0.1])
    dropped = script.attack(setting(script, rate="drops", signed=True)).recipe.optimiser
    assert (dropped.signed, dropped.schedule(999, 1_000)) == (True, pytest.approx(1e-3))


@pytest.mark.parametrize("rate", ["held", "drops", "late", "accelerated"])
def test_every_rate_says_how_long_a_run_must_be(load, rate):
    script = load("agic_layer_weights")
    optimiser = script.attack(setting(script, rate=rate, signed=rate == "accelerated")).recipe.optimiser
    assert 50 <= optimiser.least_steps(NetworkKind.DEEP) <= 1_000


def test_equal_weights_are_the_plain_cosine(load):
    script = load("agic_layer_weights")
    found = {beta: script.attack(setting(script, beta=beta)).recipe.distance for beta in (1.0, 50.0)}
    assert [(one.beta, one.relu_modifier) for one in found.values()] == [(1.0, False), (50.0, True)]


def test_unsigned_accelerated_runs_are_left_out_and_the_table_has_a_line_for_each_setting(load):
    script = load("agic_layer_weights")
    chosen = argparse.Namespace(
        network="resnet20-4", steps=300, size=1, normalised=["yes"], signed=["yes", "no"], rates=["accelerated", "held"]
    )
    chosen.betas, chosen.tv = [1.0, 50.0], 0.01
    grid = list(script.settings(chosen))
    assert len(grid) == 6
    assert {(one.rate, one.signed) for one in grid} == {("accelerated", True), ("held", True), ("held", False)}
    (line,) = script.table({grid[0]: {(700, 0): {"300": 20.0}, (701, 0): {"300": 21.0}}})
    assert line.endswith("β=1   300: 20.5 (20.0 21.0)")
    assert "signed, accelerated, 300 steps, TV 0.01, β" in line
    assert all(script.attack(one).recipe.penalties[0].weight == 0.01 for one in grid if one.rate == "held")
