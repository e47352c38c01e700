"""What a finished reproduction leaves behind: page, JSON, CLAIMS.md, exit code; failures stay."""

from __future__ import annotations

import json
import re

import pytest
import torch

from leakscope.cli import reproduce_run
from leakscope.errors import BadInputError, MissingDataError, UsageError
from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, RecipeScale, above, call_cell
from leakscope.reproduction.claims import render_claims, write_claims
from leakscope.reproduction.find import choose_recipes, find_checkout
from leakscope.reproduction.page import render_page
from leakscope.reproduction.papers import AGIC
from leakscope.reproduction.results import CellResult, Results
from leakscope.reproduction.run import Reproduced
from leakscope.reproduction.stored import read_result, result_path, write_result
from leakscope.runner import CellOutcome
from leakscope.types import Status

HOSTILE = "<script>alert(1)</script>"


def recipe(name="agic/table-1", **options) -> PaperRecipe:
    usual = {
        "paper": AGIC,
        "item": f"Table {HOSTILE}",
        "title": "new and old",
        "scenario": "C",
        "claims": (Claim("new", f"New is above | {HOSTILE}.", "12 to 11", above("psnr", {"a": "new"}, {"a": "old"})),),
        "numbers": (
            PaperNumber("Table 1", "new", "PSNR", 12.5, tags={"a": "new"}),
            PaperNumber("Table 1", "third", "PSNR", None, why_not="no such network"),
        ),
        "scales": tuple(RecipeScale(scale, 0.5, victims=2) for scale in ("smoke", "cpu", "paper")),
        "cells": lambda scale: [],
        "stand_ins": {"ImageNet": "CIFAR-10"},
    }
    return PaperRecipe(name=name, **{**usual, **options})


def reproduced(scale="cpu", *, status=Status.OK, gap=1.0, **options) -> Reproduced:
    made = recipe(**options)
    rows = []
    for victim in range(3):
        for attack, extra in (("new", gap * (1 + 0.1 * victim)), ("old", 0.0)):
            cell = call_cell({"a": attack, "v": victim}, "a.b:c", indices=[[victim]])
            record = {"values": {"psnr": [[10.0 + victim + extra]]}}
            pictures = {name: torch.full((1, 1, 4, 4), 0.5) for name in ("truth", "reconstruction")}
            rows.append(CellResult(cell, CellOutcome(Status.OK, record, pictures, seconds=6.0)))
    bad = CellResult(
        call_cell({"a": "third"}, "a.b:c"), CellOutcome(status, {"error": "ValueError", "message": HOSTILE})
    )
    return Reproduced(made, made.scale(scale), Results((*rows, bad)))


def test_the_page_is_inert_escaped_and_says_all():
    page = render_page(reproduced(status=Status.ERROR))
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 3
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert "script-src" not in policy[1]
    assert ">holds</span>" in page
    assert "6 of 7 ended well; of 1 the recipe does not say why" in page
    assert "no such network" in page
    assert "in place of ImageNet" in page
    assert page.count('alt="reconstruction"') == 6
    assert "[[2]]" in page.replace(" ", "") or "[2]" in page


def test_smoke_is_never_shown_as_evidence(tmp_path):
    page = render_page(reproduced("smoke"))
    assert "holds</span>" not in page
    assert "Nothing on it is evidence" in page
    write_result(reproduced("smoke"), tmp_path)
    assert "not run yet" in render_claims(tmp_path, [recipe()])
    assert "no evidence (smoke)" in "\n".join(reproduce_run.show(reproduced("smoke")))


def test_stored_results_hold_scalars_and_make_the_claims(tmp_path):
    write_result(reproduced(), tmp_path)
    stored = read_result(tmp_path, recipe(), "cpu")
    assert stored is not None
    assert stored["victims"] == {"examples": [[0], [1], [2]]}
    assert stored["numbers"][0]["ours"] == pytest.approx(12.1)
    assert stored["numbers"][0]["n"] == 3
    assert stored["claims"][0]["verdict"] == "holds"
    assert stored["minutes"] == 0.6
    assert str(tmp_path) not in json.dumps(stored)
    page = write_claims(tmp_path, {"agic/table-1": recipe()}).read_text()
    assert "1 claims: 1 holds." in page
    assert "| **holds**: 12.1 against 11 dB | 1.1 dB [" in page
    assert "CIFAR-10 for ImageNet" in page
    assert "New is above \\|" in page
    # Beside the larger setting the smaller one does not count.
    write_result(reproduced("paper", gap=-1.0), tmp_path)
    assert "1 claims: 1 does not hold." in render_claims(tmp_path, [recipe()])


def test_a_damaged_result_is_bad_input(tmp_path):
    path = result_path(tmp_path, recipe(), "cpu")
    path.parent.mkdir(parents=True)
    for wrong in ("{", "[]", '{"schema": 1, "recipe": "agic/table-2", "scale": "cpu"}'):
        path.write_text(wrong)
        with pytest.raises(BadInputError, match=r"table_1\.cpu\.json"):
            read_result(tmp_path, recipe(), "cpu")


def run_all(monkeypatch, tmp_path, *found, **options) -> tuple[str, int]:
    waiting = list(found)

    def run_one(*_, **__):
        one = waiting.pop(0)
        if isinstance(one, Exception):
            raise one
        (tmp_path / "out" / "agic/table-1" / one.scale.name).mkdir(parents=True, exist_ok=True)
        return one

    monkeypatch.setattr(reproduce_run, "run_recipe", run_one)
    usual = {"scale": "cpu", "workers": 1, "timeout": None, "store": True, "retry_failed": False, "quiet": True}
    settings = {**usual, "as_json": False, "everything": {"agic/table-1": recipe()}, **options}
    return reproduce_run.run_all([recipe()] * len(found), tmp_path, tmp_path / "out", **settings)


def test_exit_codes(monkeypatch, tmp_path):
    (tmp_path / "reproductions").mkdir()
    assert run_all(monkeypatch, tmp_path, reproduced())[1] == 0
    text, code = run_all(monkeypatch, tmp_path, reproduced(status=Status.ERROR), reproduced())
    assert code == 3
    assert "error: a=third: ValueError" in text
    # The row that failed is stored with its reason.
    stored = read_result(tmp_path, recipe(), "cpu")
    assert stored is not None
    text, code = run_all(monkeypatch, tmp_path, MissingDataError("no cifar10"), reproduced())
    assert code == 3
    assert "not run: no cifar10" in text
    with pytest.raises(MissingDataError):
        run_all(monkeypatch, tmp_path, MissingDataError("no cifar10"))


def test_list_price_and_names(tmp_path):
    listed = json.loads(reproduce_run.show_list([recipe()], tmp_path, as_json=True))
    assert listed[0]["cpu"] == "not run yet"
    assert listed[0]["minutes"] == {"smoke": 0.5, "cpu": 0.5, "paper": 0.5}
    priced = reproduce_run.show_price([recipe()], tmp_path, scale="cpu", workers=2, as_json=False)
    assert "0 cells, 0.5 min of one core (estimated)" in priced
    assert "0.25 min on 2" in priced
    write_result(reproduced(), tmp_path)
    assert "0.6 min of one core (measured)" in reproduce_run.show_price(
        [recipe()], tmp_path, scale="cpu", workers=2, as_json=False
    )
    with pytest.raises(UsageError, match="Did you mean 'agic/table-1'"):
        choose_recipes(["agic/table-2"], {"agic/table-1": recipe()})
    assert choose_recipes(["agic", "all"], {"agic/table-1": recipe()})[0].name == "agic/table-1"


def test_recipes_are_checked_when_they_are_made(monkeypatch, tmp_path):
    for wrong in ({"name": "mkor/table-1"}, {"name": "agic/Table_1"}, {"claims": ()}, {"scales": ()}):
        with pytest.raises(UsageError):
            recipe(**wrong)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("leakscope.reproduction.find.leakscope.__file__", str(tmp_path / "a/b/c/leakscope/x.py"))
    with pytest.raises(UsageError, match="clone it"):
        find_checkout()
