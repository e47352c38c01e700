"""The calibration: halves before looking, limits above every fitted honest model, rates of the other half."""

from __future__ import annotations

import copy

import pytest
import torch

from leakscope import models
from leakscope.inspection import calibration
from leakscope.types import Batch


def row(script, run, value, *, crafted=False, name="step-0", strength=""):
    figures = {"zeros": {"share": value}, "row-pairs": {"paired_rows": 10 * value}}
    return script.Row(run, name, crafted, strength, figures, 0.1)


def halves(script, count=40):
    rows = [script.Row(f"run {number}", "a", False, "", {}, 0.0) for number in range(count)]
    return [one.run for one in rows if one.is_held_out], [one.run for one in rows if not one.is_held_out]


def test_the_half_follows_from_the_training_alone(load):
    script = load("inspection_bag")
    held, fitted = halves(script)
    assert min(len(held), len(fitted)) > 10
    assert row(script, held[0], 0.9, crafted=True, name="other").is_held_out


def test_limits_come_from_fitted_honest_models_and_rates_from_the_others(load):
    script = load("inspection_bag")
    held, fitted = halves(script)
    rows = [row(script, run, value) for run, value in zip((*fitted[:2], *held[:2]), (0.1, 0.6, 0.65, 0.9), strict=True)]
    rows += [row(script, fitted[2], 0.99, crafted=True)]
    rows += [row(script, held[2], value, crafted=True, strength=str(value)) for value in (0.75, 0.95)]
    limits = script.fit(rows)
    assert limits["zeros"]["share"]["limit"] == pytest.approx(0.6 + 0.3 * 0.4)
    assert limits["row-pairs"]["paired_rows"]["limit"] == pytest.approx(1.5 * 6)
    assert limits["architecture"]["differences"]["limit"] == 0.0
    found = script.rates(rows, limits)
    assert (found["honest"], found["false_alarms"], found["crafted"], found["detected"]) == (2, 1, 2, 2)
    assert found["constructions"]["step-0"]["by_weights_alone"] == 2
    assert found["missed"] == []
    assert found["area_under_curve"] == pytest.approx(0.75)


def test_a_limit_is_never_below_its_floor_and_a_construction_without_a_rate_is_named(load):
    script = load("inspection_bag")
    held, fitted = halves(script)
    rows = [row(script, run, 0.1) for run in (fitted[0], held[0])]
    rows.append(row(script, fitted[1], 0.9, crafted=True, name="new"))
    limits = script.fit(rows)
    assert (limits["zeros"]["share"]["limit"], limits["row-pairs"]["paired_rows"]["limit"]) == (0.5, 3.0)
    assert script.rates(rows, limits)["only_fitted"] == ["new"]


def test_a_line_that_was_cut_off_is_left_out(load, tmp_path):
    script = load("inspection_bag")
    path = tmp_path / "rows.jsonl"
    whole = '{"run": "a", "name": "b", "is_crafted": false, "strength": "", "figures": {}, "seconds": 1}'
    path.write_text(whole + '\n{"run": "c')
    assert [one.key for one in script.read(path)] == ["a|b|"]


def test_rows_are_kept_in_the_tree_and_later_ones_count(load, tmp_path):
    script = load("inspection_rows")
    kept = tmp_path / "rows.jsonl.gz"
    first = script.Row("a", "b", False, "", {"zeros": {"share": 0.1}}, 0.5)
    script.keep([first], kept)
    written = kept.read_bytes()
    script.keep(script.read(kept), kept)
    assert kept.read_bytes() == written
    later = tmp_path / "rows.jsonl"
    later.write_text(f"{script.Row('a', 'b', False, '', {'zeros': {'share': 0.2}}, 0.5)}\n")
    (found,) = script.read(kept, later, tmp_path / "none.jsonl")
    assert found.figures == {"zeros": {"share": 0.2}}
    assert found.detectors == script.detectors_hash()


def test_stored_limits_are_those_that_the_kept_rows_give(load):
    script = load("inspection_bag")
    rows = [one for one in script.read(script.KEPT) if one.name != "done"]
    limits = script.fit(rows)
    assert limits == calibration()["limits"]
    assert script.rates(rows, limits) == calibration()["held_out"]


def test_limits_as_stored_are_judged_by_all_rows_of_a_generation(load):
    script = load("inspection_bag")
    rows = [row(script, f"mlp/digits/paper/{seed}", share) for seed, share in ((3000, 0.1), (3001, 0.99), (2001, 0.99))]
    rows += [row(script, "mlp/digits/paper/3001", 0.99, crafted=True), row(script, "a/b-published/3105", 0.99)]
    found = script.judge_stored(rows, {3})
    assert (found["honest"], found["false_alarms"], found["crafted"], found["detected"]) == (2, 1, 1, 1)


def test_no_training_begins_after_the_time(load):
    script = load("inspection_bag")
    runs = load("inspection_honest").runs()[:1]
    assert list(script.measure(runs, set(), minutes=-1.0)) == []


def test_every_construction_changes_a_network_that_has_a_place_for_it(load):
    script = load("inspection_constructions")
    agreed = models.build("lenet5", in_channels=1, image_size=16, activation="relu")
    batch = Batch(torch.rand(32, 1, 16, 16), torch.arange(32) % 10)
    for change, strengths in script.CONSTRUCTIONS.values():
        crafted = change(copy.deepcopy(agreed), batch, strengths[0])
        assert crafted is not None
        before, after = agreed.state_dict(), crafted.state_dict()
        assert before.keys() != after.keys() or any(
            before[name].shape != after[name].shape or not torch.equal(before[name], after[name]) for name in before
        )
    assert len(script.CONSTRUCTIONS) >= 12


def test_a_network_without_a_place_for_a_construction_is_left_out_and_not_left_as_it_is(load):
    script = load("inspection_constructions")
    batch = Batch(torch.rand(32, 1, 16, 16), torch.arange(32) % 10)
    assert script.widened(models.build("vit", in_channels=1, image_size=16), batch, 2.0) is None


def test_there_are_enough_honest_models_and_all_kinds_of_them(load):
    script = load("inspection_honest")
    runs = script.runs()
    assert sum(len(run.steps) + len(run.afterwards) for run in runs) >= 200
    assert {kind for run in runs for kind in run.afterwards} == set(script._AFTERWARDS)
    assert len({run.name for run in runs}) == len(runs)
    assert any(run.private for run in runs)
