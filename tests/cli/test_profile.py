from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from leakscope import files, progress
from leakscope.errors import StorageError

Command = Callable[..., tuple[int, str, str]]

QUICK = ("profile", "--model", "mlp", "--data", "digits", "--attack", "fc-inversion", "--views", "alone")


def test_a_refused_layer_is_told_with_its_reason_once(command: Command) -> None:
    code, out, _ = command(*QUICK)
    assert code == 0
    assert "No evidence alone, so not called safe: fc2 (refused), fc3 (refused)." in out
    assert out.count("fc-inversion needs a shared linear layer") == 1
    assert "no evidence (alone fc2, alone fc3): refused: fc-inversion needs" in out
    assert "did not" not in out


def test_an_attack_too_weak_for_the_whole_update_is_inconclusive(command: Command) -> None:
    _, out, _ = command(*QUICK, "--attack", "inverting-gradients:steps=2", "--data", "digits")
    assert "\nInconclusive: " in out
    assert "No single layer" not in out
    assert "diverged dB" not in out


def test_every_finished_attack_tells_the_time_left_and_so_does_each_step(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    _, _, err = command(*QUICK, "--attack", "inverting-gradients:steps=2")
    lines = err.splitlines()
    attacks = [line for line in lines if "distance" not in line]
    assert [line.split(",")[0] for line in attacks] == [
        "[1/4] everything",
        "[2/4] alone fc1",
        "[3/4] alone fc2",
        "[4/4] alone fc3",
    ]
    assert all(line.endswith(" left") for line in attacks[:-1])
    assert attacks[-1] == "[4/4] alone fc3"
    assert sum(line.startswith("[1/2] distance ") for line in lines) == 4


@pytest.mark.parametrize("kind", ["folder", "link", "below a file", "too long"])
def test_an_out_that_cannot_be_written_is_refused_before_any_attack(
    command: Command, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("file")
    names = {"below a file": "file/profile.json", "too long": "x" * 300}
    code, out, err = command(*QUICK, "--out", str(tmp_path / names.get(kind, kind)))
    assert code == 2
    assert "--out" in err
    assert "choose another" in err
    assert "[1/4]" not in err
    assert out == ""
    assert (tmp_path / "file").read_text() == "mine"


def test_nothing_is_created_for_a_command_that_cannot_run(command: Command, tmp_path: Path) -> None:
    assert command(*QUICK, "--attack", "nonsense", "--out", str(tmp_path / "new" / "p.json"))[0] == 2
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["p.json", "new/deeper/p.json"])
def test_the_numbers_are_written_as_they_are_printed(command: Command, tmp_path: Path, name: str) -> None:
    code, out, _ = command(*QUICK, "--json", "--out", str(tmp_path / name))
    assert code == 0
    assert json.loads(out) == json.loads((tmp_path / name).read_text())


def test_the_table_is_printed_even_where_writing_fails(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(files, "write_atomic", full)
    code, out, err = command(*QUICK, "--out", str(tmp_path / "p.json"))
    assert code == 2
    assert "the disk is full" in err
    assert "everything: 150.0 dB" in out
