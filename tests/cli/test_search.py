"""`leakscope search`: what it prints and writes, that it continues after a kill, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from leakscope import progress
from leakscope.defences.transforms.candidates import draw_candidates

Command = Callable[..., tuple[int, str, str]]

QUICK = (
    *("search", "--data", "digits", "--model", "mlp", "--candidates", "24", "--images", "8", "--top", "4"),
    *("--epochs", "1", "--threshold", "-1e9", "--workers", "1"),
)
WAL = "scores.sqlite-wal"


def test_a_search_prints_and_writes_its_best_policies(command: Command, tmp_path: Path) -> None:
    code, out, _ = command(*QUICK, "--out", str(tmp_path), "--policy", "3-1-7")
    assert code == 0
    found = json.loads((tmp_path / "search.json").read_text())
    assert len(found["best"]) == 4
    assert [one["privacy"] for one in found["best"]] == sorted(one["privacy"] for one in found["best"])
    assert found["rounds"][0]["candidates"] == found["candidates"]["different"] == len(draw_candidates(24)) + 1
    assert found["noise"]["privacy"] > 0
    for one in found["best"]:
        assert f"\n{one['policy']} " in out
    assert "noise floor: S_pri ±" in out
    assert "diversity of the best: " in out
    assert (tmp_path / "search.txt").read_text() in out
    assert (tmp_path / "model.safetensors").exists()


def test_the_same_command_gives_the_same_bytes_and_scores_serve_another_mode(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*QUICK, "--out", str(tmp_path))
    code, out, _ = command(*words, "--json")
    before = (tmp_path / "search.json").read_bytes()
    assert (code, json.loads(out)) == (0, json.loads(before))
    assert command(*words)[0] == 0
    assert (tmp_path / "search.json").read_bytes() == before
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    code, out, err = command(*words, "--mode", "exhaustive", "--json")
    assert code == 0
    full = {one["policy"]: one["privacy"] for one in json.loads(out)["best"]}
    race = {one["policy"]: one["privacy"] for one in json.loads(before)["best"]}
    assert len(full.keys() & race.keys()) >= 2
    assert all(full[one] == race[one] for one in full.keys() & race.keys())
    # What the race had scored is not scored again, and the time left is told.
    assert " left" in err
    assert "training" not in err


@pytest.mark.slow
def test_killed_halfway_it_continues_to_the_same_policies(command: Command, tmp_path: Path) -> None:
    words = [*QUICK, "--candidates", "60", "--no-noise"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    two = [*words, "--workers", "2", "--out", str(killed)]
    process = subprocess.Popen(
        [sys.executable, "-m", "leakscope", *two], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        ends = time.monotonic() + 120
        while not ((killed / WAL).exists() and (killed / WAL).stat().st_size > 200_000):
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < ends
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with closing(sqlite3.connect(killed / "scores.sqlite")) as connection:
        done = connection.execute("SELECT count(*) FROM score").fetchone()[0]
    assert command(*words, "--out", str(whole))[0] == 0
    assert command(*words, "--out", str(killed))[0] == 0
    with closing(sqlite3.connect(killed / "scores.sqlite")) as connection:
        total = connection.execute("SELECT count(*) FROM score").fetchone()[0]
    assert 0 < done < total
    assert (killed / "search.json").read_bytes() == (whole / "search.json").read_bytes()


@pytest.mark.slow
def test_it_says_whether_the_privacy_score_predicts_an_attack(command: Command, tmp_path: Path) -> None:
    code, out, _ = command(*QUICK, "--correlate", "4", "--no-noise", "--out", str(tmp_path))
    assert code == 0
    assert "S_pri and PSNR of inverting-gradients:steps=60: r = " in out
    found = json.loads((tmp_path / "search.json").read_text())["correlation"]
    assert found["low"] <= found["r"] <= found["high"]
    assert found["policies"] == 4


def test_colour_pictures_and_the_formulas_of_the_papers(command: Command, tmp_path: Path) -> None:
    words = ("search", "--data", "sample-photos", "--model", "mlp", "--size", "8", "--candidates", "6", "--images", "2")
    usual = ("--workers", "1", "--epochs", "0", "--top", "2", "--no-noise")
    code, out, _ = command(*words, *usual, "--scores", "paper", "--threshold", "1e9", "--out", str(tmp_path), "--json")
    assert code == 0
    found = json.loads(out)
    assert found["scores"] == "paper"
    assert all(one["accuracy"] >= 0.99 for one in found["best"])


def test_a_threshold_that_rejects_everything_is_told(command: Command, tmp_path: Path) -> None:
    code, out, _ = command(*QUICK, "--threshold", "-9.9", "--no-noise", "--out", str(tmp_path))
    assert code == 0
    assert "would be rejected: set another --threshold" in out
    assert "only 0 of the 4 policies wanted were found" in out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--candidates", "0"), 2, "candidates must be a whole number ≥ 1, got 0"),
        (("--policy", "3-50"), 2, "there is no operation 50"),
        (("--data", "fashion"), 2, "Did you mean"),
        (("--model", "resnet2"), 2, "Did you mean"),
        (("--mode", "random"), 2, "unknown mode 'random'"),
        (("--scores", "both"), 2, "'released' or as in the 'paper'"),
        (("--images", "0"), 2, "images must be a whole number from 1 to"),
        (("--workers", "0"), 2, "workers must be a whole number ≥ 1"),
        (("--epochs", "-1"), 2, "epochs must be a whole number from 0"),
        (("--correlate", "3"), 2, "at least 4 policies"),
        (("--threshold", "nan"), 2, "threshold must be a finite number"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    command: Command, tmp_path: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    found, out, err = command(*QUICK, "--out", str(tmp_path / "run"), *words)
    assert (found, out) == (code, "")
    assert told in err
    assert err.count("\n") == 1


def test_a_folder_of_another_search_is_refused(command: Command, tmp_path: Path) -> None:
    words = (*QUICK, "--no-noise", "--candidates", "2", "--out", str(tmp_path))
    assert command(*words)[0] == 0
    code, _, err = command(*words, "--seed", "1")
    assert (code, "is the network of another search" in err) == (2, True)
    code, _, err = command(*words, "--images", "7")
    assert (code, "holds the scores of another search (content" in err) == (2, True)
