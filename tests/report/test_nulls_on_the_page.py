"""What is reached without the update stands beside every score of the page, under its right name."""

from __future__ import annotations

import re

import pytest
from report_summaries import cell, images_for, render, summary

from leakscope.report.matrix import lay_out, matrices
from leakscope.report.render import MAX_BYTES
from leakscope.report.schema import parse_summary

NULLS = {"blind guess": [9.0, 11.5], "prior alone": [13.0, 9.0], "nearest public picture": [12.0, 10.0]}


def measured(**fields):
    found = cell(psnr=[30.0, 14.0], baselines=NULLS, **fields)
    found["scores"]["baseline_psnr"] = [13.0, 11.5]
    return found


def page_of(*cells, show_images: bool = True) -> str:
    content = summary(seeds=1) | {"cells": list(cells), "defences": []}
    page = render(content, images_for(content, side=8), show_images=show_images)
    return re.sub(r"<style>.*?</style>|<script.*?</script>", "", page, flags=re.DOTALL)


def plain(markup: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", markup).split())


def part(page: str, name: str) -> str:
    return page.split(f'<section id="{name}"')[1].split("</section>")[0]


def test_the_best_null_and_the_gain_stand_beside_every_score():
    page = page_of(measured())
    keys = plain(page.split('<dl class="keys">')[1].split("</dl>")[0])
    assert "its gain 17.0 dB over 13.0 dB, the best null: prior alone" in keys
    assert "best null 12.2 dB" in keys, "the median of the best nulls, called so"
    assert "gain 17.0 dB best null 13.0 dB" in plain(part(page, "matrix"))
    assert "30.0 13.0 prior alone 17.0" in plain(part(page, "cells"))
    cards = plain(part(page, "gallery"))
    assert "gain 17.0 dB best null 13.0 dB, prior alone" in cards
    assert "gain 2.5 dB best null 11.5 dB, blind guess" in cards


def test_nothing_but_a_blind_guess_is_called_a_guess():
    page = plain(page_of(measured(), cell("dlg", psnr=[12.1])))
    told = [page[max(0, at.start() - 12) : at.end() + 10] for at in re.finditer(r"\bguess", page)]
    assert told
    assert all("blind guess" in words.lower() for words in told), told


def settings_of(count: int, **fields):
    return [cell(psnr=[20.0], data=f"client-{number:05d}.safetensors", **fields) for number in range(count)]


def test_more_than_twelve_settings_forty_attacks_and_twenty_defences_are_all_shown():
    page = page_of(*settings_of(30), show_images=False)
    assert page.count('<table class="grid">') == 30
    attacks = [cell(f"attack-{number}", psnr=[20.0]) for number in range(60)]
    assert part(page_of(*attacks, show_images=False), "matrix").count('class="entry') == 60
    names = ["none", *(f"defence-{number}" for number in range(30))]
    contested = [cell("dlg", name, psnr=[20.0], adaptive=knows) for name in names for knows in (False, True)]
    shown = part(page_of(*contested, show_images=False), "matrix")
    assert all(f">{name}</th>" in shown for name in names[1:])
    assert shown.count('class="entry') == 62
    assert "summary.json" not in shown


def test_a_wide_matrix_is_continued_and_no_part_is_wider_than_paper():
    names = ["none", *(f"defence-{number}" for number in range(30))]
    cells = [
        cell("dlg", name, psnr=[20.0], adaptive=knows) for name in names for knows in (False, True) if name != "none"
    ]
    (matrix,) = matrices(parse_summary(summary(seeds=1) | {"cells": [cell("dlg"), *cells]}).cells, [])
    parts = lay_out([matrix]).matrices
    assert [column.name for one in parts for column in one.columns] == names
    widths = [sum(1 + column.adaptive for column in one.columns) for one in parts]
    assert max(widths) <= 10
    assert sum(widths) == 61
    assert [len(one.rows[0].entries) for one in parts] == [len(one.columns) for one in parts]
    assert parts[0].setting.endswith(f"part 1 of {len(parts)}")


@pytest.mark.parametrize("count", [1_500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_any_number_of_settings_is_on_a_page_below_its_limit(count: int):
    content = summary(seeds=1) | {"cells": settings_of(count), "defences": []}
    page = render(content, None, show_images=False)
    assert len(page.encode()) < MAX_BYTES
    shown = part(page, "matrix")
    assert 500 < shown.count('<table class="grid">') < count, "the worst as matrices, the others in brief"
    assert all(f"client-{number:05d}.safetensors" in shown for number in range(count))
    assert "further line" not in shown


@pytest.mark.parametrize("side", [50, pytest.param(100, marks=pytest.mark.slow)])
def test_one_matrix_that_is_larger_than_its_share_is_shown_in_lines(side: int):
    cells = [cell(f"a{row}", f"d{column}", psnr=[20.0]) for row in range(side) for column in range(side)]
    page = render(summary(seeds=1) | {"cells": cells, "defences": []}, None, show_images=False)
    assert len(page.encode()) < MAX_BYTES
    assert part(page, "matrix").split("<tbody>")[1].count("<tr>") == side**2


def test_the_room_taken_on_the_page_is_rather_over_than_underestimated():
    content = summary(seeds=1)
    found = matrices(parse_summary(content).cells, parse_summary(content).defences)
    (grid,) = re.findall(r'<figure class="matrix">.*?</figure>', render(content, None, show_images=False), re.DOTALL)
    assert len(grid.encode()) <= found[0].bytes <= 2 * len(grid.encode())
