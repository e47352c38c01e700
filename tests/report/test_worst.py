"""One worst image: its grade, PSNR, SSIM, gain and picture are shown everywhere, and no other image's."""

from __future__ import annotations

import re

import pytest
import torch
from report_summaries import cell, records, render, summary, verdict

from leakscope.report.evidence import by_defence, group
from leakscope.report.gallery import build_gallery
from leakscope.report.grades import find_worst
from leakscope.report.matrix import matrices
from leakscope.report.schema import DefenceCost, TrainingFindings
from leakscope.report.words import fit_words, remarks


def _two_faced(defence: str = "none", **fields):
    """The first image has the higher PSNR and SSIM, of the second more was given away."""
    found = cell(defence=defence, psnr=[16.8, 16.4], ssim=[0.61, 0.52], **fields)
    found["scores"]["baseline_psnr"] = [16.1, 10.2]
    return found


def test_level_first_then_gain_then_psnr():
    # Level: C against A although the PSNR is lower.
    assert find_worst([16.8, 16.4], ssim=[0.61, 0.52], baseline=[16.1, 10.2]) == 1
    # The same level: the larger gain.
    assert find_worst([18.0, 17.5], ssim=[0.5, 0.5], baseline=[12.5, 11.0]) == 1
    # The same gain: the higher PSNR.
    assert find_worst([18.0, 17.0], ssim=[0.5, 0.5], baseline=[12.0, 11.0]) == 0
    assert find_worst([float("nan"), 9.0]) == 1
    assert find_worst([]) is None


def test_the_best_null_counts_not_the_first_or_the_lowest():
    one = cell(psnr=[16.0], baselines={"blind guess": [9.0], "prior alone": [15.5], "nearest public picture": [14.0]})
    one["scores"]["baseline_psnr"] = [9.0]
    (example,) = group(records(one)).examples
    assert example.baseline == 15.5
    assert example.gain == pytest.approx(0.5)
    assert (example.grade, example.best_null) == ("A", "prior alone")
    assert "0.5 dB closer than the same attack on another update" in verdict([one], 20.0).sentences[0]


def test_a_group_speaks_of_one_example():
    found = group(records(_two_faced()))
    assert (found.worst.index, found.worst_psnr, found.worst_ssim) == (1, 16.4, 0.52)
    assert found.worst_gain == pytest.approx(6.2)
    assert found.grade == found.worst.grade == "D"


def test_failed_attacks_count_for_the_worst_and_not_for_the_typical_image():
    cells = records(cell(psnr=[12.0, 12.4]), cell("agic", psnr=[25.0, 24.0], status="diverged"))
    found = group(cells)
    assert found.worst_psnr == 25.0
    assert found.median_psnr == pytest.approx(12.2)


def test_every_part_of_the_report_shows_the_same_example():
    cells = [_two_faced(), _two_faced("prune 0.9"), _two_faced("prune 0.9", adaptive=True)]
    found = records(*cells)
    judged = verdict(cells, 15.0)
    assert (judged.worst.index, judged.worst.psnr, judged.worst.ssim) == (1, 16.4, 0.52)
    assert "16.4 dB, SSIM 0.52, 6.2 dB closer than a blind guess" in judged.sentences[0]
    entry = matrices(found, [])[0].rows[0].entries[0][0]
    assert (entry.group.worst_psnr, entry.group.worst_ssim, entry.group.grade) == (16.4, 0.52, "D")
    assert {row.both.worst_psnr for row in by_defence(found)} == {16.4}
    pictures = torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8)
    cards = build_gallery(group(found).examples, {one.key: pictures for one in found}, budget=10**6).cards
    assert [card.example.index for card in cards[:3]] == [1, 1, 1]


def test_all_figures_called_worst_on_the_page_agree():
    place = {"accuracy_drop": 0.01, "model": "resnet20", "data": "cifar10"}
    costs = [place | {"name": name} for name in ("none", "prune")]
    cells = [_two_faced(), _two_faced("prune"), _two_faced("prune", adaptive=True)]
    page = render(summary(seeds=1) | {"cells": cells, "defences": costs}, {}, show_images=False)
    body = page.split("<script")[0]
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))
    named = re.findall(r"[Ww]orst (?:image|of \d+ \w+(?: \w+)?)?(?: reached)?:? ?(\d+\.\d) dB", plain)
    assert len(named) >= 4
    assert set(named) == {"16.4"}
    # The higher PSNR of the other image is named once per defence, as the highest of the curve, and nowhere else.
    assert re.findall(r"(\w+) 16\.8", plain) == ["highest", "highest"]
    assert re.findall(r'<span class="top">.*?<b>([\d.]+) dB', body, re.S) == ["16.4"] * 3


def test_what_was_trained_on_is_told_of_the_same_example():
    (one,) = records(_two_faced(trained_scores={"psnr": [40.0, 21.0]}))
    assert remarks(one) == ["worst 21.0 dB against what was trained on"]


def test_the_fit_in_words():
    fits = [{"explained": 0.93, "cosine": 0.96, "unrelated": 0.41, "truth": 1.0}, {"explained": 0.99, "unrelated": 0.4}]
    (one,) = records(cell(fits=fits))
    assert fit_words(one) == "explains 93 % of the update; an unrelated picture 41 %; the true examples 100 %"
    assert fit_words(records(cell())[0]) == ""


@pytest.mark.parametrize(("low", "high", "at_chance"), [(0.09, 0.14, True), (0.10, 0.14, True), (0.11, 0.14, False)])
def test_accuracy_is_at_chance_where_its_interval_reaches_down_to_it(low, high, at_chance):
    found = TrainingFindings(accuracy=0.12, ci=(low, high), classes=10, chance=0.10)
    assert found.at_chance is at_chance
    assert not TrainingFindings(accuracy=0.12, ci=(low, high)).at_chance


def test_a_defence_under_which_nothing_is_learnt_is_not_recommended():
    cells = [cell(psnr=[34.0])] + [cell(defence="noise", psnr=[9.0], adaptive=flag) for flag in (False, True)]
    cost = {"name": "noise", "accuracy": 0.1, "accuracy_drop": 0.7, "chance": 0.1, "classes": 10, "at_chance": True}
    assert "protects best" in " ".join(verdict(cells, 18.0, defences=[cost | {"at_chance": False}]).sentences)
    assert "protects best" not in " ".join(verdict(cells, 18.0, defences=[cost]).sentences)
    assert by_defence(records(*cells), [DefenceCost.model_validate(cost)])[1].at_chance
