"""`leakscope compare` on run folders and summaries."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
from report_summaries import cell, summary


def write(folder: Path, *cells, **changes) -> Path:
    folder.mkdir()
    content = summary(seeds=1) | {"cells": list(cells)} | changes
    (folder / "summary.json").write_text(json.dumps(content))
    return folder


def test_worse_exits_1_and_says_where(command, tmp_path):
    before, after = write(tmp_path / "a", cell(psnr=[19.0])), write(tmp_path / "b", cell(psnr=[25.0]))
    code, out, err = command("compare", str(before), str(after))
    assert (code, err) == (1, "")
    assert "worse (1): more was given away than before" in out
    assert "19.0 dB (D) → 25.0 dB (E)" in out
    assert out.splitlines()[-1].startswith("WORSE: 1 result above the gate of 18 dB")


def test_the_same_run_is_not_worse(command, tmp_path):
    run = write(tmp_path / "a", cell())
    code, out, _ = command("compare", str(run), str(run / "summary.json"))
    assert code == 0
    assert out.splitlines()[-1].startswith("NOT WORSE")


def test_json(command, tmp_path):
    before, after = write(tmp_path / "a", cell()), write(tmp_path / "b", cell(status="timeout", psnr=[]))
    code, out, _ = command("compare", str(before), str(after), "--json")
    read = json.loads(out)
    assert (code, read["exit_code"], read["counts"]) == (3, 3, {"lost": 1})
    assert read["cells"][0]["after"] == {"status": "timeout", "grade": "?", "psnr": None, "above": False}


def test_different_gates_are_said(command, tmp_path):
    before, after = write(tmp_path / "a", cell()), write(tmp_path / "b", cell(), threshold_psnr=40.0)
    assert "different gates: 18 dB and 40 dB" in command("compare", str(before), str(after))[1]


def test_names_cannot_command_the_terminal(command, tmp_path):
    run = write(tmp_path / "a", cell("\x1b]0;owned\x07\x1b[2J", psnr=[25.0]))
    empty = write(tmp_path / "b")
    out = command("compare", str(empty), str(run))[1]
    assert "\x1b" not in out
    assert "\x07" not in out


@pytest.mark.parametrize("content", [None, "{", "[]", '{"schema": 1}'])
def test_a_bad_folder_is_one_line_and_exit_4(command, tmp_path, content):
    good, bad = write(tmp_path / "a", cell()), tmp_path / "b"
    bad.mkdir()
    if content is not None:
        (bad / "summary.json").write_text(content)
    for pair in ((good, bad), (bad, good)):
        code, out, err = command("compare", *map(str, pair))
        assert (code, out) == (4, "")
        assert err.startswith("leakscope: ")
        assert err.count("\n") == 1
