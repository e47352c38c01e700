"""`leakscope attack` ends when nobody watches: a time limit for each update, and no simulation without end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import leakscope as ls

Command = Callable[..., tuple[int, str, str]]
WORDS = ("--model", "mlp", "--input-shape", "1,8,8", "--out", "out")
ENDLESS = ("--attack", "inverting-gradients:steps=1000000")


@pytest.fixture(autouse=True)
def updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = ls.models.build("mlp", in_channels=1, image_size=8)
    shared = [ls.share(model, ls.data.load("digits", indices=[place])) for place in range(2)]
    Path("folder").mkdir()
    for place, update in enumerate(shared):
        ls.save_update(f"folder/u{place}.safetensors", update)
    local = ls.LocalTraining(1e-4, 5000, 1)
    ls.save_update(
        "many.safetensors", ls.SharedUpdate("delta", ls.load_update("folder/u0.safetensors").tensors, 1, local)
    )


def test_an_attack_without_end_is_ended(command: Command) -> None:
    began = time.monotonic()
    code, _out, err = command("attack", "folder/u0.safetensors", *WORDS, *ENDLESS, "--timeout", "1s")
    assert code == 3
    assert "u0.safetensors: no result within 1 s; give a longer --timeout" in err
    assert time.monotonic() - began < 30
    assert not Path("out").exists(), "nothing half-written"


def test_in_a_folder_it_costs_one_file(command: Command) -> None:
    code, out, err = command("attack", "folder", *WORDS, *ENDLESS, "--timeout", "1s")
    assert (code, err) == (3, "")
    entries = json.loads(Path("out/result.json").read_text())["updates"]
    assert [entry["status"] for entry in entries] == ["timeout", "timeout"]
    assert out.count("timeout: u") == 2


@pytest.mark.parametrize("off", ["none", "0", "12h"])
def test_a_limit_that_is_off_or_far_changes_nothing(command: Command, off: str) -> None:
    words = ("attack", "folder/u0.safetensors", *WORDS, "--attack", "fc-inversion", "--timeout", off)
    assert command(*words)[0] == 0


@pytest.mark.parametrize("wrong", ["-1s", "soon", "nan"])
def test_a_limit_that_is_none_is_refused(command: Command, wrong: str) -> None:
    code, _out, err = command("attack", "folder/u0.safetensors", *WORDS, "--timeout", wrong)
    assert code == 2
    assert "--timeout: expected a length of time above 0" in err


def test_thousands_of_local_steps_in_a_manifest_are_not_simulated(command: Command) -> None:
    began = time.monotonic()
    words = ("attack", "many.safetensors", *WORDS, "--scenario", "C", "--attack", "inverting-gradients:steps=2")
    code, out, _err = command(*words)
    assert code in (0, 3)
    assert "5,000 local steps are too many to simulate" in out
    assert time.monotonic() - began < 20
