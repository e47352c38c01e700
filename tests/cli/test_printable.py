"""Escape sequences, direction marks and endless names from files and users reach neither terminal nor page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

import leakscope as ls
from leakscope.errors import LeakscopeError
from leakscope.report import write_report
from leakscope.report.schema import parse_summary
from leakscope.text import printable, printable_lines, without_controls

Command = Callable[..., tuple[int, str, str]]

NASTY = {
    "escape": "a\x1b[31mb",
    "title": "a\x1b]0;owned\x07b",
    "csi": "a\x9b2Jb",
    "bell": "a\x07b",
    "return": "a\rleakscope: all is well",
    "backspace": "a\b\b\bb",
    "override": "a\u202egnp.exe",
    "isolate": "a\u2066b\u2069",
    "separator": "a\u2028b",
    "zero width": "a\u200bb",
    "delete": "a\x7fb",
}
_BAD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f]")
SUMMARY = Path(__file__).parent.parent / "audits" / "run_of_0_1" / "summary.json"


def assert_harmless(*texts: str) -> None:
    for text in texts:
        assert not (found := _BAD.search(text)), (found, text[:300])


@pytest.mark.parametrize("name", NASTY)
def test_what_a_terminal_would_obey_is_replaced(name: str) -> None:
    for clean in (printable, printable_lines, without_controls):
        assert_harmless(clean(NASTY[name]))
        assert clean(NASTY[name]).startswith("a")
    assert printable("Zürich, 東京 – 3 × 4 ≥ 2") == "Zürich, 東京 – 3 × 4 ≥ 2"
    assert len(printable("x" * 10**6)) == 2_000


def test_a_line_in_a_name_does_not_pass_for_one_of_ours() -> None:
    assert printable_lines("cannot read a\nleakscope: all is well\n  - a way") == (
        "cannot read a\n  leakscope: all is well\n  - a way"
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    model = ls.models.build("mlp", in_channels=1, image_size=8, seed=0)
    batch = ls.data.load("digits", indices=[0])
    ls.save_update(tmp_path / "u.safetensors", ls.share(model, batch))
    return tmp_path


@pytest.mark.parametrize("name", ["escape", "title", "return", "override"])
def test_names_on_the_command_line_come_back_harmless(command: Command, files: Path, name: str) -> None:
    nasty, update = NASTY[name], str(files / "u.safetensors")
    usual = ("--model", "mlp", "--input-shape", "1,8,8", "--out", str(files / "out"))
    for words in (
        ("attack", nasty, *usual),
        ("attack", update, *usual, "--attack", nasty),
        ("attack", update, *usual, "--weights", nasty),
        ("attack", update, "--model", nasty, "--input-shape", "1,8,8"),
        ("attack", update, *usual, "--labels", nasty),
        ("audit", "--data", nasty, "--dry-run"),
        ("audit", "--config", nasty),
        ("report", nasty),
        ("prior", "show", nasty),
        ("list", nasty),
        (nasty,),
    ):
        code, out, err = command(*words)
        assert code in (2, 4), words
        assert_harmless(out, err)


@pytest.mark.parametrize("name", ["escape", "csi", "bell", "isolate"])
def test_names_in_files_come_back_harmless(command: Command, files: Path, name: str) -> None:
    nasty = NASTY[name]
    usual = ("--model", "mlp", "--input-shape", "1,8,8", "--out", str(files / "out"))
    safetensors.torch.save_file({nasty: torch.ones(3)}, files / "t.safetensors")
    np.savez(files / "t.npz", **{nasty: np.ones(3)})
    (files / "c.yaml").write_text(json.dumps({nasty: 1}))
    (files / "d.yaml").write_text(json.dumps({"models": [nasty]}))
    (files / "e.yaml").write_text(json.dumps({"local": {nasty: 1}}))
    words = [("attack", str(files / f"t.{suffix}"), *usual) for suffix in ("safetensors", "npz")]
    words += [("audit", "--config", str(files / f"{letter}.yaml"), "--out", str(files / "run")) for letter in "cde"]
    for one in words:
        code, out, err = command(*one)
        assert code in (2, 4), one
        assert_harmless(out, err)


@pytest.mark.parametrize("name", ["escape", "title", "return", "override"])
def test_class_folders_and_file_names_come_back_harmless(command: Command, tmp_path: Path, name: str) -> None:
    folder = tmp_path / NASTY[name]
    (folder / NASTY[name]).mkdir(parents=True)
    (folder / NASTY[name] / f"{NASTY[name]}.png").write_bytes(b"no picture")
    code, out, err = command("profile", "--data", str(folder), "--model", "mlp", "--size", "8")
    assert code in (2, 4)
    assert_harmless(out, err)


@pytest.mark.parametrize("name", NASTY)
def test_a_summary_makes_a_harmless_page(tmp_path: Path, name: str) -> None:
    content = json.loads(SUMMARY.read_text())
    nasty = NASTY[name]
    content["title"] = content["command"] = nasty
    content["config"] = {nasty: [nasty, {"title": nasty}]}
    content["environment"] = {nasty: nasty}
    content["not_tested"] = [nasty]
    for cell in content["cells"]:
        cell |= {key: nasty for key in ("model", "data", "attack", "defence", "error", "message") if key in cell}
        cell["notes"] = [nasty]
    (tmp_path / "summary.json").write_text(json.dumps(content))
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert_harmless(page)
    assert_harmless(*(text for text in _texts(parse_summary(content).model_dump())))


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in _texts(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("name", NASTY)
def test_where_a_prior_comes_from_is_shown_harmless(command: Command, tmp_path: Path, name: str) -> None:
    from leakscope.matching.candidates import save_prior
    from leakscope.priors.convolutional import ConvDecoder
    from leakscope.priors.prior import Prior

    decoder = ConvDecoder((1, 8, 8), latent=2, width=1)
    weights = {key: torch.zeros(shape) for key, shape in decoder.shapes().items()}
    save_prior(tmp_path / "p.safetensors", Prior(decoder, weights, NASTY[name]))
    out = tmp_path / NASTY[name]
    code, said, err = command("prior", "show", str(tmp_path / "p.safetensors"), "--count", "1", "--out", str(out))
    assert code == 0
    assert_harmless(said, err)


def test_a_very_long_name_does_not_flood_the_terminal(command: Command, tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    for words in (
        ("attack", "x" * 100_000, "--model", "mlp"),
        ("list", "y" * 100_000),
        ("audit", "--data", "z" * 90_000),
    ):
        code, out, err = command(*words)
        assert code in (2, 4)
        assert len(out) + len(err) < 30_000


def test_every_error_of_ours_is_shown_through_one_function() -> None:
    assert_harmless(printable_lines(LeakscopeError("\x1b]8;;http://x\x1b\\click\x1b]8;;\x1b\\")))
