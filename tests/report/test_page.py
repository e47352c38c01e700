"""What the page says beside the figures: advice, draft of a DPIA, statuses, and data that are no pictures."""

from __future__ import annotations

import html
import re

import pytest
from report_summaries import cell, render, summary, verdict

from leakscope import report
from leakscope.report.dpia import DISCLAIMER, draft_dpia
from leakscope.report.remedies import advise
from leakscope.report.statuses import MEANINGS, status_mark
from leakscope.types import Status


def read(content):
    """The page as a reader sees it."""
    page = render(content, None, show_images=False)
    page = re.sub(r"<(style|script)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page)))


def clauses(content):
    parsed = report.parse_summary(content)
    judged = report.verdict(parsed.cells, parsed.threshold_psnr, self_check=parsed.self_check)
    return {clause.reference: " ".join(clause.sentences) for clause in draft_dpia(parsed, judged, advise(parsed))}


def test_the_draft_follows_article_35_and_disclaims():
    page = read(summary(seeds=1))
    for reference in ("Art. 35(7)(a)", "Art. 35(7)(b)", "Art. 35(7)(c)", "Art. 35(7)(d)", "EDPB Opinion 28/2024"):
        assert reference in page
    assert DISCLAIMER in page
    assert "does not certify compliance" in DISCLAIMER


def test_the_draft_says_what_the_run_found():
    leak = clauses(summary(seeds=1) | {"cells": [cell(psnr=[30.0, 12.0])]})
    assert "resnet20" in leak["Art. 35(7)(a)"]
    assert "1 of 2 private examples came back above 18 dB" in leak["Art. 35(7)(c)"]
    assert "grade" in leak["Art. 35(7)(c)"]
    assert "cannot be called anonymous" in leak["EDPB Opinion 28/2024"]
    within = clauses(summary(seeds=1) | {"cells": [cell(psnr=[12.0])]})["EDPB Opinion 28/2024"]
    assert "not proof" in within
    assert "cannot be called" not in within
    broken = clauses(summary(seeds=1) | {"cells": [cell(psnr=[], status="timeout")]})
    assert "supports no claim of anonymity" in broken["EDPB Opinion 28/2024"]


def test_a_defence_is_named_in_the_measures_only_if_it_is_enough():
    content = summary(seeds=1)
    chosen = advise(report.parse_summary(content)).chosen
    text = clauses(content)["Art. 35(7)(d)"]
    for name in ("prune 0.9", "soteria 0.8"):
        assert f"{name} is not sufficient" in text
    assert chosen is None or f"With {chosen.name}" in text


def test_every_status_has_words_and_a_colour():
    assert {str(status) for status in Status} <= set(MEANINGS)
    assert status_mark("unexplained") == status_mark("unfinished") == "end-doubt"
    assert status_mark("ok") != status_mark("diverged") != status_mark("refused")


@pytest.mark.parametrize("status", ["unexplained", "unfinished", "timeout"])
def test_a_failed_cell_is_explained_in_plain_words(status):
    assert MEANINGS[status] in read(summary(seeds=1) | {"cells": [cell(), cell("dlg", status=status)]})


def test_fits_and_diagnoses_are_shown():
    fits = [
        {"explained": 0.93, "unrelated": 0.41, "diagnosis": ""},
        {"explained": 0.31, "unrelated": 0.33, "diagnosis": "Adam explains 97 %, the declared SGD 31 %"},
    ]
    page = read(summary(seeds=1) | {"cells": [cell(psnr=[12.0, 12.0], fits=fits, status="unexplained")]})
    assert "31 % unrelated 33 %" in page, "the update that is explained least counts"
    assert "inverting-gradients on cifar10 : Adam explains 97 %, the declared SGD 31 %" in page


def test_nearly_all_of_an_update_is_told_apart_from_a_little_less():
    fits = [{"explained": 1 - 6e-11, "unrelated": 1 - 1e-7}]
    page = read(summary(seeds=1) | {"cells": [cell(fits=fits)]})
    assert "all but 6e-11 unrelated all but 1e-07" in page


def test_accuracy_at_chance_is_said():
    content = summary(seeds=1)
    content["defences"][1] |= {"accuracy": 0.104, "classes": 10, "chance": 0.1, "at_chance": True}
    page = read(content)
    assert "10.4 % is what guessing among 10 classes gets (10 %)" in page
    assert "learns nothing: accuracy at chance" in page


def proven(**changed):
    usual = {"epsilon": 8.04, "delta": 1e-5, "unit": "example", "sampling_rate": 0.032, "steps": 150}
    return (
        usual | {"noise_multiplier": 0.77, "reconstruction": {"0.1": 0.4567}, "assumes": "batches are fixed"} | changed
    )


def test_what_is_proven_stands_beneath_what_was_measured():
    content = summary(seeds=1)
    assert "Proven" not in read(content)
    content["defences"][1] |= {
        "guarantee": proven(),
        "guarantee_of_one": proven(epsilon=2.5, steps=1, reconstruction={"0.1": 0.2}),
    }
    content["defences"][2] |= {"guarantee": proven(epsilon=None, reconstruction={"0.1": 1.0})}
    page = read(content)
    assert "ε = 8.04 at δ = 1e-05, unit: example, sampling rate 0.032, rounds 150." in page
    assert "Over all rounds no attacker succeeds with more than 45.7 % where a guess succeeds in 10 %." in page
    assert "From one gradient (ε = 2.5 at δ = 1e-05) no attacker succeeds with more than 20.0 %" in page
    assert "Holds where batches are fixed." in page
    assert "ε is infinite: no noise" in page
    assert "Over all rounds nothing is proven of reconstruction." in page


def rows_of_numbers(**fields):
    return cell(ssim=[None, None], psnr=[30.0, 12.0], data="patients.npz", **fields)


def test_rows_of_numbers_are_not_called_images():
    content = summary(seeds=1) | {"cells": [rows_of_numbers(), rows_of_numbers(defence="prune 0.9", adaptive=True)]}
    # The self-check of leakscope itself does plant an image.
    content["self_check"] = None
    page = read(content)
    body = page.split("For a data protection")[0]
    assert "worst example" in body
    words = re.findall(r"\b(?:images?|pictures?)\b", body.replace("Images are hidden", ""))
    assert words == [], words


def test_pictures_are_called_images_and_a_mixture_examples():
    assert "worst image" in read(summary(seeds=1))
    mixed = read(summary(seeds=1) | {"cells": [cell(), rows_of_numbers()]})
    assert "worst example" in mixed


@pytest.mark.parametrize("psnr", [12.5, 14.0, 15.5, 17.6, 22.0, 30.0])
def test_no_verdict_on_rows_of_numbers_speaks_of_pictures(psnr):
    found = verdict([cell(psnr=[psnr], ssim=[None])], 18.0)
    text = " ".join([found.headline, *found.sentences])
    assert not re.search(r"\b(images?|pictures?|colour|brightness|shapes|visible)\b", text), text


def test_hostile_names_stay_text_in_the_new_parts():
    hostile = '<img src=x onerror="alert(1)">'
    content = summary(seeds=1) | {
        "cells": [
            cell(hostile, model=hostile, data=hostile, fits=[{"explained": 0.1, "diagnosis": hostile}]),
            cell(hostile, hostile, adaptive=True, status=hostile),
        ],
        "defences": [{"name": hostile, "model": hostile, "data": hostile, "accuracy": 0.1, "at_chance": True}],
    }
    assert "<img" not in render(content, None, show_images=False)
