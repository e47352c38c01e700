"""Tables on the command line: ranges by column and one-hot groups, of options and of files together."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import yaml

import leakscope as ls

pytestmark = pytest.mark.usefixtures("inline_workers")

Command = Callable[..., tuple[int, str, str]]
AGE = np.array(
    [[0.3, 0, 1, 0, 1, 0], [0.7, 1, 0, 0, 0, 1], [0.5, 0, 0, 1, 1, 0], [0.2, 1, 0, 0, 1, 0]], dtype="float32"
)
LABELS = np.array([0, 1, 2, 1])
QUICK = ("--victims", "1", "--workers", "1", "--quiet", "--out", "run")
MODULE = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.Sigmoid(), nn.Linear(12, 3))

def table():
    import numpy as np
    held = np.load("people.npz")
    return held["inputs"], held["targets"]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tablenet", raising=False)
    (tmp_path / "tablenet.py").write_text(MODULE)
    _save(AGE)
    return tmp_path


def _save(rows: np.ndarray, **more: np.ndarray) -> None:
    np.savez("people.npz", inputs=rows, targets=LABELS, **more)


def _audit(command: Command, *words: str, data: str = "people.npz") -> tuple[int, str, str]:
    given = ("--model", "tablenet:build", "--data", data, "--attack", "fc-inversion", *QUICK)
    return command("audit", *given, *words)


def test_an_audit_knows_one_hot_columns_and_keeps_them(command: Command, here: Path) -> None:
    _save(AGE, one_hot=np.array([-1, 0, 0, 0, -1, -1]))
    code, _, err = _audit(command, "--bounds", "0,1", "--one-hot", "1-3,4-5")
    assert code == 0, err
    assert yaml.safe_load((here / "run" / "config.yaml").read_text())["one_hot"] == "1-3,4-5"
    (cell,) = json.loads((here / "run" / "summary.json").read_text())["cells"]
    assert cell["scores"]["columns_recovered"] == [1.0]
    assert "ssim" not in cell["scores"]


def test_the_setting_of_a_file_is_the_same(command: Command, here: Path) -> None:
    (here / "audit.yaml").write_text("one_hot: 0-1\nbounds: 0,1\nvictims: 1\n")
    code, _, err = _audit(command, "--config", "audit.yaml", data="tablenet:table")
    assert (code, "columns [0, 1] are declared one-hot" in err) == (4, True)
    (here / "audit.yaml").write_text("one_hot: '5-4'\n")
    code, _, err = command("audit", "--config", "audit.yaml", "--out", "other")
    assert code == 2
    assert "--one-hot must name groups of columns" in err


@pytest.mark.parametrize("words", [(), ("--bounds", "0,1"), ("--bounds", "0,1;0,1;0,1;0,1;0,1;0,1")])
def test_a_file_keeps_its_groups_beside_any_option(command: Command, here: Path, words: tuple[str, ...]) -> None:
    groups = np.array([-1, 0, 0, 0, -1, -1])
    both = AGE.copy()
    both[:, 1] = 1
    _save(both, one_hot=groups)
    code, _, err = _audit(command, "--one-hot", "4-5", *words)
    assert code == 4, "columns 1 to 3 hold two ones, and the file says that they are one-hot"
    assert "columns [1, 2, 3] are declared one-hot" in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--one-hot", "0-1"), 4, "columns [0, 1] are declared one-hot"),
        (("--one-hot", "1-3,3-4"), 2, "column 3 is in two one-hot groups"),
        (("--one-hot", "1-9"), 2, "out of 0…5"),
        (("--one-hot", "1"), 2, "as first-last"),
        (("--one-hot", "0-999999999"), 2, "as first-last"),
        (("--one-hot", "1-3", "--bounds", "none"), 2, "--bounds none lifts every range"),
        (("--one-hot", "1-3", "--data", "digits"), 2, "--one-hot has no effect"),
    ],
)
def test_groups_that_cannot_be_are_refused(
    command: Command, here: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    data = "people.npz" if "--data" not in words else "digits"
    kept = words if data == "people.npz" else words[:2]
    got, _, err = _audit(command, *kept, data=data)
    assert got == code, err
    assert said in err


def _update(here: Path) -> None:
    import tablenet  # type: ignore[import-not-found]

    # Not one-hot: only the option can make the result so.
    batch = ls.Batch(torch.tensor([[0.3, 0.6, 0.7, 0.5, 0.4, 0.2]]), torch.from_numpy(LABELS[:1]))
    update = ls.share(tablenet.build(), batch, seed=0)
    assert isinstance(update, ls.SharedUpdate)
    ls.save_update(here / "u.safetensors", update)


def _attack(command: Command, *words: str) -> tuple[int, str, str]:
    given = ("--model", "tablenet:build", "--input-shape", "6", "--attack", "inverting-gradients:steps=20,restarts=1")
    return command("attack", "u.safetensors", *given, "--out", "out", *words)


@pytest.mark.parametrize("bounds", [(), ("--bounds", "0,2;0,1;0,1;0,1;0,1;0,1"), ("--bounds", "0,2")])
def test_an_attack_keeps_to_the_groups_it_is_told(command: Command, here: Path, bounds: tuple[str, ...]) -> None:
    _update(here)
    code, _, err = _attack(command, *bounds, "--one-hot", "1-3,4-5")
    assert code in (0, 3), err
    (row,) = safetensors.torch.load_file(here / "out" / "inputs.safetensors")["inputs"]
    assert [float(row[1:4].sum()), float(row[4:6].sum())] == pytest.approx([1.0, 1.0], abs=1e-5)
    _attack(command, *bounds)
    (free,) = safetensors.torch.load_file(here / "out" / "inputs.safetensors")["inputs"]
    assert abs(float(free[1:4].sum()) - 1) > 1e-3


def test_the_truth_of_an_attack_is_read_with_the_same_groups(command: Command, here: Path) -> None:
    _update(here)
    np.savez("truth.npz", inputs=AGE[:1], targets=LABELS[:1])
    code, out, err = _attack(command, "--one-hot", "1-3,4-5", "--truth", "truth.npz")
    assert code in (0, 3), err
    assert "worst example" in out
    np.savez("truth.npz", inputs=np.ones((1, 6), dtype="float32"), targets=LABELS[:1])
    code, _, err = _attack(command, "--one-hot", "1-3,4-5", "--truth", "truth.npz")
    assert code == 4
    assert "declared one-hot" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--bounds", "0,1;0,1"), "names 2 columns"),
        (("--one-hot", "1-9"), "out of 0…5"),
        (("--one-hot", "1-3", "--bounds", "none"), "lifts every range"),
    ],
)
def test_an_attack_refuses_what_does_not_fit(command: Command, here: Path, words: tuple[str, ...], said: str) -> None:
    _update(here)
    code, _, err = _attack(command, *words)
    assert code == 2
    assert said in err
