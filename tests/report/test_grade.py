from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_summaries import cell, verdict

from leakscope.report import grade_example
from leakscope.report.grades import GRADES

LETTERS = "ABCDEF"


@pytest.mark.parametrize(
    ("psnr", "ssim", "baseline", "expected"),
    [
        (12.5, 0.10, 12.0, "A"),
        (12.9, 0.95, 12.0, "A"),  # flat pictures: similar to any guess, yet nothing was gained
        (14.0, 0.16, 12.0, "B"),
        (15.5, 0.31, 12.0, "C"),
        (17.5, 0.46, 12.0, "D"),
        (21.5, 0.70, 12.0, "E"),
        (34.1, 0.95, 12.0, "F"),
        (math.inf, 1.0, 12.0, "F"),
        (17.5, 0.10, 12.0, "C"),  # (D + A) / 2, rounded towards the worse
        (17.5, None, 12.0, "D"),  # without SSIM the gain decides
        (26.0, 0.90, None, "F"),  # without a measured guess 10 dB is assumed
        (math.nan, 0.9, 12.0, "?"),
        (None, 0.9, 12.0, "?"),
    ],
)
def test_example_grades(psnr, ssim, baseline, expected):
    assert grade_example(psnr, ssim, baseline) == expected


@given(
    psnr=st.floats(0, 60),
    ssim=st.floats(0, 1),
    more_psnr=st.floats(0, 20),
    more_ssim=st.floats(0, 1),
)
def test_a_better_reconstruction_never_grades_safer(psnr, ssim, more_psnr, more_ssim):
    before = grade_example(psnr, ssim, 12.0)
    after = grade_example(psnr + more_psnr, min(1.0, ssim + more_ssim), 12.0)
    assert LETTERS.index(after) >= LETTERS.index(before)


def test_thresholds_rise_with_the_letter():
    assert "".join(grade.letter for grade in GRADES) == LETTERS
    assert [g.gain_db for g in GRADES] == sorted(g.gain_db for g in GRADES)
    assert [g.ssim for g in GRADES] == sorted(g.ssim for g in GRADES)


def test_the_worst_image_decides_not_the_average():
    found = verdict([cell(psnr=[9.0] * 99 + [34.0])], 18.0)
    assert (found.grade, found.status) == ("F", "leak")
    assert "34.0 dB" in found.sentences[0]


def test_within_threshold():
    found = verdict([cell(psnr=[12.1, 11.0])], 18.0)
    assert (found.grade, found.status) == ("A", "within")


def test_exactly_the_threshold_is_within():
    assert verdict([cell(psnr=[18.0])], 18.0).status == "within"


def test_defended_leaks_do_not_change_the_undefended_grade():
    cells = [cell(psnr=[12.1]), cell(defence="prune 0.9", psnr=[33.0])]
    assert verdict(cells, 18.0).status == "within"


def test_a_run_of_defended_cells_is_judged_by_them():
    found = verdict([cell(defence="prune 0.9", psnr=[33.0], adaptive=True)], 18.0)
    assert (found.grade, found.status) == ("F", "leak")
    assert "under prune 0.9" in found.sentences[0]


@pytest.mark.parametrize("status", ["diverged", "nan", "oom", "timeout", "error"])
def test_a_broken_attack_is_never_protection(status):
    cells = [cell(psnr=[12.0], seed=seed) for seed in range(9)] + [cell("agic", psnr=[5.0], status=status, seed=9)]
    found = verdict(cells, 18.0)
    assert (found.grade, found.status) == ("?", "inconclusive")
    assert f"agic against no defence (seed 9: {status})" in " ".join(found.sentences)


def test_ninety_five_per_cent_is_enough():
    cells = [cell(psnr=[12.0], seed=seed) for seed in range(19)] + [cell(status="timeout", seed=19)]
    assert verdict(cells, 18.0).status == "within"
    assert verdict(cells[1:], 18.0).status == "inconclusive"


@pytest.mark.parametrize("status", ["refused", "sealed"])
def test_what_could_not_be_attacked_does_not_count_as_failed(status):
    cells = [cell(psnr=[12.0]), *(cell(defence="x", status=status, seed=seed) for seed in range(5))]
    assert verdict(cells, 18.0).status == "within"


def test_a_run_of_sealed_cells_measured_nothing():
    found = verdict([cell(defence="ckks", status="sealed")], 18.0)
    assert found.status == "inconclusive"
    assert "nothing was measured" in found.sentences[0]


def test_no_cells_is_inconclusive():
    assert verdict([], 18.0).status == "inconclusive"


def test_a_perfect_copy_without_psnr_in_json_is_the_worst_leak():
    perfect = cell(psnr=[None, 12.0])
    perfect["scores"]["mse"][0] = 0.0
    found = verdict([perfect], 18.0)
    assert (found.grade, found.status) == ("F", "leak")
    assert "∞ dB" in found.sentences[0]


def test_ok_without_a_number_is_not_evidence():
    assert verdict([cell(psnr=[None])], 18.0).status == "inconclusive"
    assert verdict([cell(psnr=[math.nan, 12.0])], 18.0).status == "inconclusive"


def test_undefended_failures_are_not_hidden_by_many_defended_successes():
    cells = [cell(status="diverged"), *(cell(defence="prune", psnr=[11.0], seed=seed) for seed in range(60))]
    found = verdict(cells, 18.0)
    assert found.status == "inconclusive"
    assert "without defence" in found.sentences[0]


def test_a_failed_self_check_refuses_to_say_safe():
    found = verdict([cell(psnr=[10.0])], 18.0, self_check={"name": "fc", "psnr": 9.0, "passed": False})
    assert (found.grade, found.status) == ("?", "inconclusive")


def test_a_defence_is_judged_by_the_attacker_who_knows_it():
    cells = [
        cell(psnr=[34.0]),
        cell(defence="prune 0.9", psnr=[12.0]),
        cell(defence="prune 0.9", psnr=[27.0], adaptive=True),
        cell(defence="noise", psnr=[12.0]),
        cell(defence="noise", psnr=[12.5], adaptive=True),
    ]
    costs = [{"name": "noise", "accuracy_drop": 0.041}, {"name": "prune 0.9", "accuracy_drop": 0.0}]
    text = " ".join(verdict(cells, 18.0, defences=costs).sentences)
    assert "noise protects best" in text
    assert "costs 4.1 points of accuracy" in text
    assert "Do not rely on prune 0.9 alone" in text
    assert "still gets 27.0 dB" in text


def test_a_defence_never_tried_by_one_who_knows_it_is_not_recommended():
    cells = [cell(psnr=[34.0]), cell(defence="prune 0.9", psnr=[11.0])]
    text = " ".join(verdict(cells, 18.0).sentences)
    assert "none has been shown to protect" in text


def test_a_defence_whose_attacks_diverged_is_not_recommended():
    good = [cell(psnr=[34.0], seed=seed) for seed in range(60)]
    broken = [cell(defence="noise", psnr=[8.0]), cell(defence="noise", adaptive=True, status="diverged")]
    assert "protects best" not in " ".join(verdict(good + broken, 18.0).sentences)


def test_a_defence_whose_training_diverged_is_not_recommended():
    cells = [cell(psnr=[34.0])] + [cell(defence="noise", psnr=[9.0], adaptive=flag) for flag in (False, True)]
    costs = [{"name": "noise", "accuracy_drop": 0.7, "diverged": True}]
    assert "protects best" not in " ".join(verdict(cells, 18.0, defences=costs).sentences)


def test_structure_alone_makes_no_copy():
    assert grade_example(22.0, 0.99, 12.0) == "E"
    assert grade_example(27.5, 0.99, 12.0) == "F"
