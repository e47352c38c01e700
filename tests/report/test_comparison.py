"""Two runs side by side."""

from __future__ import annotations

import json

import pytest
from report_summaries import cell, summary

from leakscope import report
from leakscope.report.comparison import change_words, compare_runs


def run(*cells, threshold=18.0, **changes):
    return report.parse_summary(summary(seeds=1) | {"cells": list(cells), "threshold_psnr": threshold} | changes)


def compare(before, after, **options):
    return compare_runs(run(*before, **options), run(*after, **options))


@pytest.mark.parametrize(
    ("before", "after", "change", "code"),
    [
        ([20.0], [20.4], "unchanged", 0),
        ([20.0], [20.6], "worse", 1),
        ([20.0], [19.4], "better", 0),
        ([17.8], [18.1], "worse", 1),  # over the gate, however little
        ([18.1], [17.8], "better", 0),
        ([12.5], [13.9], "worse", 0),  # worse, but below the gate
        ([25.0, 10.0], [10.0, 25.0], "unchanged", 0),  # the worst example decides
        ([25.0, 10.0], [10.0, 10.0], "better", 0),
    ],
)
def test_the_worst_example_and_the_gate_decide(before, after, change, code):
    found = compare([cell(psnr=before)], [cell(psnr=after)])
    assert [one.change for one in found.cells] == [change]
    assert found.exit_code == code


def test_cells_are_matched_by_what_they_are_and_not_by_key():
    found = compare([cell(key="aa"), cell("dlg", key="bb")], [cell("dlg", key="aa"), cell(key="bb")])
    assert found.counts == {"unchanged": 2}


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"adaptive": True},
        {"scenario": "D"},
        {"batch_size": 4},
        {"model": "mlp"},
        {"data": "digits"},
        {"rounds": 2},
        {"local": {"lr": 0.1, "steps": 2, "batch_size": 1}},
    ],
)
def test_another_setting_is_another_cell(change):
    found = compare([cell(defence="prune 0.9")], [cell(defence="prune 0.9", **change)])
    assert found.counts == {"new": 1, "gone": 1}


def test_a_new_leak_above_the_gate_fails_and_one_below_does_not():
    assert compare([cell()], [cell(), cell("dlg", psnr=[19.0])]).exit_code == 1
    assert compare([cell()], [cell(), cell("dlg", psnr=[17.0])]).exit_code == 0


@pytest.mark.parametrize("status", ["diverged", "timeout", "unexplained", "unfinished", "error"])
def test_a_result_that_broke_down_is_not_better(status):
    found = compare([cell(psnr=[30.0])], [cell(psnr=[9.0], status=status)])
    assert found.counts == {"lost": 1}
    assert found.exit_code == 3
    assert "INCONCLUSIVE" in found.line


def test_a_result_that_is_there_again_is_measured():
    found = compare([cell(status="timeout", psnr=[])], [cell(psnr=[12.0])])
    assert (found.counts, found.exit_code) == ({"measured": 1}, 0)
    above = compare([cell(status="timeout", psnr=[])], [cell(psnr=[22.0])])
    assert (above.counts, above.exit_code) == ({"worse": 1}, 1)


def test_a_worse_grade_is_worse_at_the_same_decibels():
    found = compare([cell(psnr=[17.0], ssim=[0.1])], [cell(psnr=[17.0], ssim=[0.9])])
    assert found.counts == {"worse": 1}


def test_regressions_come_first_and_the_line_names_the_first():
    found = compare(
        [cell(), cell("dlg", psnr=[19.0])], [cell(psnr=[20.0]), cell("dlg", psnr=[29.0]), cell("agic", psnr=[9.0])]
    )
    assert [one.change for one in found.cells] == ["worse", "new", "better"]
    assert change_words(found.cells[0]) == "19.0 dB (D) → 29.0 dB (F)"
    assert found.line.startswith("WORSE: 1 result above the gate of 18 dB; dlg against no defence")


def test_accuracies_are_compared_by_defence():
    before = run(cell())
    rows = [row.model_dump() for row in before.defences]
    after = run(cell(), defences=[rows[0] | {"accuracy": 0.5}, *rows[2:]])
    found = {row.name: (row.before, row.after) for row in compare_runs(before, after).accuracies}
    assert found["resnet20 on cifar10, no defence"] == (0.884, 0.5)
    assert found["resnet20 on cifar10, prune 0.9"] == (pytest.approx(0.872), None)


def test_it_is_json(tmp_path):
    perfect = cell(psnr=[None])
    perfect["scores"]["mse"] = [0.0]
    found = compare([perfect], [cell()])
    read = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert read["cells"][0]["before"]["psnr"] == "inf"
    assert read["counts"] == {"better": 1}
