"""One gate: status, printed line and exit code are one decision, with its interval."""

from __future__ import annotations

import pytest
from report_summaries import cell, records, verdict

from leakscope.metrics import exact_interval
from leakscope.report import gate
from leakscope.report.evidence import group
from leakscope.report.schema import SelfCheck

FAILED_STATUSES = ["unexplained", "unfinished", "diverged", "nan"]


def test_above_the_gate_fails_with_the_figures():
    found = gate(records(cell(psnr=[16.8, 12.0, 11.0, 9.0])), 15.0)
    assert (found.status, found.exit_code, found.above, found.total) == ("leak", 1, 1, 4)
    assert found.line == (
        "FAILED: 16.8 dB > 15 dB (worst of 4 private examples; 1 above, 95 % interval 1–81 % of such examples)"
    )


def test_within_the_gate_passes_and_says_how_little_a_few_examples_show():
    found = gate(records(cell(psnr=[12.1, 11.0])), 15.0)
    assert (found.status, found.exit_code) == ("within", 0)
    assert found.line == (
        "PASSED: 12.1 dB ≤ 15 dB (worst of 2 private examples; none above, 95 % interval 0–84 % of such examples)"
    )


def test_exactly_the_gate_is_within_and_just_above_is_printed_as_above():
    exact = gate(records(cell(psnr=[15.0])), 15.0)
    assert exact.line.startswith("PASSED: 15.0 dB ≤ 15 dB")
    assert exact.above == 0
    assert gate(records(cell(psnr=[15.02])), 15.0).line.startswith("FAILED: 15.02 dB > 15 dB")


def test_without_a_gate_a_leak_is_a_finding_and_no_failure():
    below, above = records(cell(psnr=[12.0])), records(cell(psnr=[25.0]))
    assert "no gate was set" not in gate(below, 20.0).line
    free = [gate(cells, 20.0, is_default=True) for cells in (below, above)]
    assert [(one.status, one.exit_code, one.line.split(":")[0]) for one in free] == [
        ("within", 0, "WITHIN"),
        ("leak", 0, "LEAK"),
    ]
    assert all("no gate was set; --fail-above sets one" in one.line for one in free)
    assert gate(above, 20.0, is_default=True, never_run=1).exit_code == 3, "the run is not done"
    unsure = gate(records(cell(psnr=[9.0], status="unexplained")), 20.0, is_default=True)
    assert (unsure.status, unsure.exit_code) == ("inconclusive", 3)


@pytest.mark.parametrize("status", FAILED_STATUSES)
def test_an_attack_that_is_no_evidence_never_passes(status):
    found = gate(records(cell(psnr=[9.0], status=status)), 15.0)
    assert (found.status, found.exit_code) == ("inconclusive", 3)
    assert found.line.startswith(f"INCONCLUSIVE: only 0 of 1 attack gave evidence (1 {status}); so far 9.0 dB ≤ 15 dB")


@pytest.mark.parametrize("status", FAILED_STATUSES)
def test_what_was_rebuilt_is_a_leak_whatever_the_status(status):
    found = verdict([cell(psnr=[25.0], status=status)], 15.0)
    assert (found.status, found.exit_code) == ("leak", 1)
    assert found.grade in "DEF"
    assert found.line.startswith("FAILED: 25.0 dB > 15 dB")


def test_a_failed_attack_that_rebuilt_a_picture_is_told_as_a_leak():
    cells = [
        cell(psnr=[30.0]),
        cell("agic", psnr=[25.0], status="unfinished"),
        cell("dlg", psnr=[9.0], status="diverged"),
    ]
    (told,) = [line for line in verdict(cells, 20.0).sentences if line.startswith("No proof of safety")]
    assert "1 unfinished, 1 diverged" in told
    assert told.endswith("1 of them rebuilt a recognisable image all the same: that leak is counted.")
    told = verdict([cells[0], cells[2]], 20.0).sentences
    assert not any("all the same" in line for line in told)


def test_a_leak_wins_over_failed_attacks_and_cells_that_never_ran():
    cells = records(cell(psnr=[25.0]), *(cell("agic", status="timeout", seed=seed) for seed in range(9)))
    found = gate(cells, 15.0, never_run=3, self_check=SelfCheck(passed=False))
    assert (found.status, found.exit_code) == ("leak", 1)


def test_a_short_attack_gives_no_grade_a():
    """Five steps: no better than a guess, because there was no time to be."""
    short = cell(psnr=[12.0, 12.1], status="unfinished")
    found = verdict([short], 15.0)
    assert (found.grade, found.status, found.exit_code) == ("?", "inconclusive", 3)
    assert "no more than a guess" not in found.headline
    # The same figures from an attack that was done are evidence.
    assert verdict([cell(psnr=[12.0, 12.1])], 15.0).grade == "A"


@pytest.mark.parametrize("status", ["unexplained", "unfinished", "timeout"])
def test_an_attack_of_which_no_run_is_evidence_is_not_outvoted_by_others(status):
    many = [cell(psnr=[12.0], seed=seed) for seed in range(60)]
    alone = cell("agic", psnr=[9.0] if status != "timeout" else None, status=status)
    assert gate(records(*many), 15.0).status == "within"
    found = gate(records(*many, alone), 15.0)
    assert (found.status, found.exit_code) == ("inconclusive", 3)
    assert "no run of agic" in found.line


def test_cells_that_never_ran_leave_it_open():
    found = gate(records(cell(psnr=[12.0])), 15.0, never_run=2)
    assert (found.status, found.exit_code) == ("inconclusive", 3)
    assert "2 planned cells never ran to the end" in found.line


def test_the_highest_figure_decides_even_where_another_example_is_worse_by_grade():
    bright = cell(psnr=[16.8, 16.4], ssim=[0.1, 0.6])
    bright["scores"]["baseline_psnr"] = [16.0, 10.0]
    found = gate(records(bright), 16.5)
    assert (found.status, found.above) == ("leak", 1)
    assert found.worst.psnr == 16.4
    assert found.line.startswith(
        "FAILED: 16.8 dB > 16.5 dB (highest of 2 private examples; the worst by grade, 16.4 dB, is below"
    )


def test_a_gate_below_the_baselines_fails_and_says_so():
    flat = cell(psnr=[16.0])
    flat["scores"]["baseline_psnr"] = [15.9]
    found = verdict([flat], 15.0)
    assert (found.grade, found.status, found.exit_code) == ("A", "leak", 1)
    assert "no closer than without the update" in found.line
    assert "no closer" not in verdict([cell(psnr=[16.0])], 15.0).line


def test_a_private_example_counts_once_however_often_it_was_attacked():
    cells = records(*(cell(psnr=[16.0, 12.0], seed=seed) for seed in range(5)), cell("agic", psnr=[11.0, 17.0]))
    found = gate(cells, 15.0)
    assert (found.above, found.total) == (2, 2)
    rounds = cell(psnr=[16.0, 12.0, 16.5, 12.5], rounds=2, victims=2)
    assert group(records(rounds)).exposed(15.0) == (1, 2)


@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    # Published tables of Clopper–Pearson limits; 0 of n: 1 − 0.025^(1/n).
    [
        (0, 8, 0.0, 1 - 0.025 ** (1 / 8)),
        (8, 8, 0.025 ** (1 / 8), 1.0),
        (1, 10, 0.0025, 0.4450),
        (5, 10, 0.1871, 0.8129),
    ],
)
def test_exact_intervals(successes, total, low, high):
    assert exact_interval(successes, total) == pytest.approx((low, high), abs=1e-4)


def test_the_verdict_repeats_the_gate():
    cells = [cell(psnr=[16.8, 12.0])]
    found, decided = verdict(cells, 15.0), gate(records(*cells), 15.0)
    assert (found.status, found.line, found.exit_code) == (decided.status, decided.line, decided.exit_code)
    assert (found.worst.key, found.worst.index, found.worst.psnr) == (cells[0]["key"], 0, 16.8)
