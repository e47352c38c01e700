from __future__ import annotations

import math

import pytest


def result(psnrs, *, seconds=1.0, final=None, norm=2.0, setup=0.0, per_step=1):
    trajectory = [
        {"evaluations": (i + 1) * per_step, "wall": setup + (i + 1) * seconds, "cpu": 1.0, "psnr": value}
        for i, value in enumerate(psnrs)
    ]
    return {
        "trajectory": trajectory,
        "wall": setup + len(psnrs) * seconds,
        "cpu": 1.0,
        "psnr": psnrs[-1] if final is None else final,
        "gradient_norm": norm,
        "peak_mb": 500.0,
    }


def test_time_per_evaluation_leaves_set_up_out_and_counts_evaluations(load):
    pairs = load("peers.pairs")
    slow_start = result([5, 6, 7], seconds=0.5, setup=30.0, per_step=20)
    assert pairs.ms_per_evaluation(slow_start, clock="wall") == pytest.approx(25.0)


def test_a_single_snapshot_has_no_time_per_evaluation(load):
    pairs = load("peers.pairs")
    assert math.isnan(pairs.ms_per_evaluation(result([5.0]), clock="wall"))


def test_ratios_include_leakscopes_set_up_and_breachings_own_first_reach(load):
    pair = load("peers.pairs").Pair(result([5, 16.95, 16, 15, 17]), result([6, 18, 20], seconds=0.5, setup=0.5))
    assert pair.target == 17
    assert pair.ours == pytest.approx(1.5)
    assert pair.run_ratio == pytest.approx(5.0 / 1.5)
    assert pair.reach_ratio == pytest.approx(2.0 / 1.5)


def test_a_target_never_reached_counts_as_infinite_time(load):
    pair = load("peers.pairs").Pair(result([5, 17]), result([6, 10, 12]))
    assert pair.ours == math.inf
    assert pair.run_ratio == 0


def test_a_returned_image_between_snapshots_counts_as_the_whole_run(load):
    pair = load("peers.pairs").Pair(result([5, 17]), result([6, 10], final=17.5))
    assert pair.ours == pytest.approx(2.0)


def test_different_problems_are_refused(load):
    with pytest.raises(SystemExit, match="different gradients"):
        load("peers.pairs").Pair(result([5, 17]), result([6, 18], norm=2.1))


def test_table_leaves_failed_victims_out_of_the_times_and_says_so(load):
    pairs, table = load("peers.pairs"), load("peers.table")
    good = pairs.Pair(result([5, 17], seconds=2.0), result([6, 18]))
    dead = pairs.Pair(result([5.0, 5.1], seconds=50.0), result([6, 18]))
    cells = dict(zip(table.HEADINGS[9:15], table.row(("lenet-dlg", 1, "default"), [good, dead])[9:15], strict=True))
    assert cells["breaching's run (s)"] == "4"
    assert cells["ratio to run"] == "2.00×"
    assert cells["reached"] == "1/1 (1)"


def test_table_has_one_cell_per_heading(load):
    pairs, table = load("peers.pairs"), load("peers.table")
    pair = pairs.Pair(result([5, 17]), result([6, 18]))
    lines = table.render({("convnet", 1, "default"): [pair]}).splitlines()
    assert len({line.count("|") for line in lines[:3]}) == 1
