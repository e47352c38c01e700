"""What a run holds in memory: one cell at a time, and no file that it only hashes."""

from __future__ import annotations

import hashlib
import json
import resource
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from leakscope.audits import parse_config, run_campaign
from leakscope.audits.read_files import hash_file
from leakscope.cli import main
from leakscope.runner import outcomes

TWO_GIB = 2 * 2**30
SMALL: dict[str, Any] = {
    "model_options": {"mlp": {"hidden": [4]}},
    "attacks": ["fc-inversion"],
    "victims": 1,
    "workers": 1,
    "utility": None,
    "seeds": list(range(4)),
}


def test_a_campaign_holds_the_pictures_of_one_cell_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[weakref.ref[Tensor]] = []
    alive: list[int] = []
    load = outcomes.load_cell

    def watched(*args: Any) -> Any:
        alive.append(sum(tensor() is not None for tensor in held))
        cell, outcome = load(*args)
        held.extend(weakref.ref(tensor) for tensor in outcome.tensors.values())
        return cell, outcome

    monkeypatch.setattr(outcomes, "load_cell", watched)
    found = run_campaign(parse_config(SMALL), tmp_path / "run", show_images=True, quiet=True)
    assert found.missing == 0
    assert len(alive) == len(SMALL["seeds"]), "each cell is read once"
    each = len(held) // len(alive)
    assert each >= 1, "cells without pictures would show nothing"
    assert max(alive) <= each
    assert all(tensor() is None for tensor in held), "the result of a campaign holds pictures"


def _sparse(path: Path, *, declared: int, size: int) -> Path:
    """A safetensors file of one tensor of `declared` bytes; of `size` bytes itself, and of none on the disk."""
    header = {"big": {"dtype": "F32", "shape": [declared // 4], "data_offsets": [0, declared]}}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(size)
    assert path.stat().st_blocks * 512 < 2**20, "this file system keeps no sparse files"
    return path


@pytest.mark.slow
def test_a_file_of_more_than_2_gib_is_hashed_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _sparse(tmp_path / "big.safetensors", declared=TWO_GIB, size=TWO_GIB + 2**20)
    pieces: list[int] = []

    class Counting:
        """Of 2 GiB a real hash takes long, and tells no more."""

        def update(self, piece: bytes) -> None:
            pieces.append(len(piece))

        def hexdigest(self) -> str:
            return "0" * 64

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with monkeypatch.context() as patch:
        patch.setattr("leakscope.audits.read_files.hashlib.sha256", Counting)
        hash_file(path)
    assert (sum(pieces), max(pieces)) == (TWO_GIB + 2**20, 2**20)
    # In kilobytes.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024
    # A piece and a half.
    content = bytes(range(256)) * 6144
    (tmp_path / "small").write_bytes(content)
    assert hash_file(tmp_path / "small") == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (None, "tensors need 3,221,225,472 bytes, the budget is 2,147,483,648"),
        ("3000", "tensors need 3,221,225,472 bytes, the budget is 3,145,728,000"),
        ("4096", "declares 3,221,225,560 bytes, the file has 2,684,354,560"),
    ],
)
def test_the_budget_for_weights_of_more_than_2_gib_is_an_option(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    budget: str | None,
    said: str,
) -> None:
    # Half a gigabyte is missing at its end: allowed by the budget, it is refused for that, before it is read.
    path = _sparse(tmp_path / "big.safetensors", declared=3 * 2**30, size=5 * 2**29)
    options = [] if budget is None else ["--budget-mb", budget]
    words = ["attack", str(path), "--model", "mlp", "--input-shape", "1,8,8", "--out", str(tmp_path / "out"), *options]
    monkeypatch.setattr(sys, "argv", ["leakscope", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 4
    assert said in capsys.readouterr().err
