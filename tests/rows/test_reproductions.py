"""Rows say under which scenario they were measured, and are measured under it."""

from __future__ import annotations

import pytest
import torch
from reproductions import attacks, check, generators, measures, victims
from reproductions.generators import BeatsAGuess, Reaches
from reproductions.rows import Measured, Row

import leakscope as ls
from leakscope.attacks.agic import agic
from leakscope.attacks.geng import geng
from leakscope.attacks.grnn import grnn
from leakscope.attacks.grnn_refined import refined_grnn

BY_NAME = {row.name: row for row in attacks.ROWS}


@pytest.fixture
def seen_runs(monkeypatch):
    """What the rows would attack, without attacking it: (images, scenario, local, attack) of every run."""
    found = []

    def pictures(*indices):
        draw = torch.Generator().manual_seed(0)
        return ls.Batch(torch.rand(len(indices), 3, 32, 32, generator=draw), torch.tensor(indices) % 10)

    def observe(model, batch, *, scenario, local=None):
        found.append({"size": len(batch), "scenario": scenario, "local": local, "model": model})
        return found[-1]

    def attack(made, seen, batch, *, seed):
        seen["attack"] = made
        return 20.0

    monkeypatch.setattr(victims, "seen_by", observe)
    monkeypatch.setattr(victims, "psnr_of", attack)
    monkeypatch.setattr(victims, "cifar10", lambda *indices: (found.append(indices), pictures(*indices))[1])
    return found


@pytest.mark.parametrize("row", attacks.ROWS, ids=lambda row: row.name)
def test_every_row_says_its_scenario_and_its_cost(row):
    assert row.setting.endswith(f"scenario {row.scenario}")
    assert row.scenario in "ABCDE"
    assert row.minutes > 0


def test_names_of_rows_are_unique():
    assert len(BY_NAME) == len(attacks.ROWS)


def test_a_row_is_measured_under_the_scenario_that_it_says():
    row = Row(
        "x", "a network", "a bar", lambda scenario, say: Measured((1.0,), True, scenario), scenario="D", minutes=1
    )
    assert row.run(print).note == "D"


@pytest.mark.parametrize("name", ["cpl", "adam-l1", "agic", "geng-1"])
def test_rows_against_a_guess_pass_their_scenario_on(name, seen_runs):
    BY_NAME[name].run(lambda text: None)
    runs = [one for one in seen_runs if isinstance(one, dict)]
    assert {one["scenario"] for one in runs} == {BY_NAME[name].scenario}


def test_geng_is_measured_on_full_batch_steps_of_two_images(seen_runs):
    row = BY_NAME["geng"]
    row.run(lambda text: None)
    runs = [one for one in seen_runs if isinstance(one, dict)]
    assert [one for one in seen_runs if isinstance(one, tuple)] == [(300, 301), (302, 303), (304, 305), (306, 307)]
    for one in runs:
        assert (one["size"], one["scenario"]) == (2, "C")
        assert one["local"] == ls.LocalTraining(lr=1e-3, steps=4, batch_size=2)
        # The default: no softer settings for the row.
        assert one["attack"] == geng()


PUBLISHED = grnn(schedule="paper", steps=1_000)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("grnn", Reaches(grnn(), "lenet-grnn", range(8))),
        ("grnn-pool-free", Reaches(PUBLISHED, "lenet-dlg", range(40, 48))),
        ("grnn-refined", Reaches(refined_grnn(), "lenet-grnn", range(40, 44))),
        ("grnn-batch-16", BeatsAGuess(PUBLISHED, "lenet-grnn", (range(40, 56), range(56, 72)))),
        (
            "grnn-resnet18",
            BeatsAGuess(grnn(schedule="paper", steps=1_000, tv=1e-6), "resnet18-grnn", (range(40, 41),)),
        ),
    ],
)
def test_rows_of_grnn_take_the_settings_they_name(name, expected):
    assert BY_NAME[name].measure == expected


def test_only_grnns_residual_network_uses_batch_statistics():
    assert generators.build("resnet18-grnn", 0).training
    assert not generators.build("lenet-dlg", 0).training


def row(name, *, fails="", minutes=1.0):
    return Row(
        name, "MLP", "a bar", lambda scenario, say: Measured((1.0,), True), scenario="C", minutes=minutes, fails=fails
    )


@pytest.mark.parametrize(
    ("held", "code"),
    [((True, True), 0), ((True, False), 3), ((False, True), 1), ((False, False), 1)],
)
def test_the_exit_code_tells_a_failure_that_is_said_from_one_that_is_not(held, code):
    claims = [row("sound"), row("weak", fails="too few steps")]
    assert check.exit_code(claims, [Measured((1.0,), holds) for holds in held]) == code


def test_a_row_that_fails_stays_in_the_table_with_its_reason():
    claims = [row("sound"), row("weak", fails="too few steps")]
    for holds, said in ((False, "**no**, as expected: too few steps"), (True, "yes, though marked as failing")):
        lines = check.table(claims, [(Measured((1.0,), holds), 2.0)] * 2)
        assert "| scenario |" in lines[0]
        assert said in lines[3]
        assert all(line.count("|") == lines[0].count("|") for line in lines)
        assert "| C |" in lines[2]
    assert "| **no** |" in check.table(claims[:1], [(Measured((1.0,), False), 2.0)])[2]


def test_the_list_says_scenario_cost_and_failures():
    lines = check.listed("attacks", [row("sound", minutes=2), row("weak", fails="too few steps", minutes=4)])
    assert lines[0] == "attacks: sound: MLP, scenario C: a bar: about 2 min"
    assert lines[1].endswith("about 4 min: FAILS: too few steps")
    assert "2 rows, about 6 minutes" in lines[2]


def test_quick_rows_are_chosen_by_their_cost():
    claims = [row("short", minutes=2), row("long", minutes=3)]
    assert check.chosen(claims, None, longest=2) == claims[:1]
    assert check.chosen(claims, ["long"]) == claims[1:]
    with pytest.raises(SystemExit, match="no such row: absent"):
        check.chosen(claims, ["absent"])


def test_the_row_of_agics_weights_compares_the_same_run_with_and_without_them(monkeypatch):
    asked = []

    def attack(made, seen, batch, *, seed):
        asked.append(made)
        return 20.0 if made.recipe.distance.beta == 1 else 23.5

    picture = ls.Batch(torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0)), torch.tensor([3]))
    monkeypatch.setattr(measures, "psnr_of", attack)
    monkeypatch.setattr(measures, "seen_by", lambda model, batch, *, scenario: scenario)
    monkeypatch.setattr(measures, "cifar10", lambda *images: picture)
    found = BY_NAME["agic-weights"].run(lambda text: None)
    assert asked == [agic(schedule="held"), agic(schedule="held", beta=1.0, relu_modifier=False)]
    assert (found.values, found.holds) == ((3.5,), True)
