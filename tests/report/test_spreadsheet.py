"""The CSV beside summary.json: every example, no formulas."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest
from report_summaries import cell, summary

from leakscope import report
from leakscope.report.spreadsheet import COLUMNS, to_csv


def rows(*cells):
    content = summary(seeds=1) | {"cells": list(cells)}
    return list(csv.DictReader(io.StringIO(to_csv(report.parse_summary(content)), newline="")))


def test_one_line_per_example_with_its_own_figures():
    found = rows(cell(psnr=[30.0, 12.5], ssim=[0.9, 0.1]), cell("dlg", psnr=[20.0]))
    assert list(found[0]) == list(COLUMNS)
    assert [(row["attack"], row["example"], row["psnr"], row["ssim"], row["gain"]) for row in found] == [
        ("inverting-gradients", "0", "30", "0.9", "18"),
        ("inverting-gradients", "1", "12.5", "0.1", "0.5"),
        ("dlg", "0", "20", "0.5", "8"),
    ]
    assert [row["grade"] for row in found[:2]] == ["F", "A"]


def test_a_failed_cell_keeps_its_line():
    (row,) = rows(cell(status="error", psnr=[], defence="prune 0.9", adaptive=True))
    assert (row["status"], row["psnr"], row["grade"], row["attacker"]) == ("error", "", "", "knows it")
    assert row["error"] == "stopped: error"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\n"])
def test_text_that_a_spreadsheet_would_run_is_escaped(start):
    hostile = f'{start}cmd|"/c calc"!A1'
    (row,) = rows(cell(hostile, hostile, model=hostile, data=hostile, error=hostile))
    for name in ("attack", "defence", "model", "data", "error"):
        assert row[name] == f"'{hostile}"


def test_no_column_starts_a_formula_except_negative_numbers():
    found = rows(cell(psnr=[-3.0, math.inf], fits=[{"explained": -0.5, "unrelated": 0.2, "diagnosis": "=1"}]))
    assert [row["psnr"] for row in found] == ["-3", "inf"]
    assert found[0]["explained"] == "-0.5"
    assert found[0]["diagnosis"] == "'=1"
    for row in found:
        for value in row.values():
            assert not value.startswith(("=", "+", "@", "\t", "\r"))
            assert value[:1] != "-" or float(value) < 0


def test_each_example_has_the_fit_of_its_own_update():
    fits = [{"explained": 0.9}, {"explained": 0.4}]
    found = rows(cell(psnr=[1.0, 2.0, 3.0, 4.0], batch_size=2, fits=fits))
    assert [row["explained"] for row in found] == ["0.9", "0.9", "0.4", "0.4"]


def test_it_is_written_beside_the_page(tmp_path):
    content = summary(seeds=1)
    (tmp_path / "summary.json").write_text(json.dumps(content))
    report.write_report(tmp_path)
    written = (tmp_path / "results.csv").read_bytes().decode()
    assert written == to_csv(report.parse_summary(content))
    assert written.count("\r\n") > len(content["cells"])


def test_every_null_has_a_column_and_the_best_is_named():
    nulls = {"blind guess": [11.0, 12.5], "prior alone": [13.0, 9.0], "nearest public picture": [12.0, 10.0]}
    found = rows(cell(psnr=[30.0, 20.0], baselines=nulls, scores={"psnr": [30.0, 20.0], "baseline_psnr": [13.0, 12.5]}))
    columns = ("blind_guess_psnr", "prior_alone_psnr", "nearest_public_psnr", "baseline_psnr", "best_null", "gain")
    assert [tuple(row[name] for name in columns) for row in found] == [
        ("11", "13", "12", "13", "prior alone", "17"),
        ("12.5", "9", "10", "12.5", "blind guess", "7.5"),
    ]
    (old,) = rows(cell(psnr=[30.0]))
    assert [old[name] for name in columns] == ["", "", "", "12", "blind guess", "18"]
