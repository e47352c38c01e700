"""`leakscope audit` with what a user has: own networks, photographs, tables, datasets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from own_files import draw_photographs, save_rows, write_module

pytestmark = pytest.mark.usefixtures("inline_workers")

Command = Callable[..., tuple[int, str, str]]
QUICK = ("--victims", "1", "--workers", "1", "--quiet", "--out", "run")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of the user's module; the working folder holds it, photographs and a table."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    draw_photographs(tmp_path / "photos")
    save_rows(tmp_path / "rows.npz")
    return write_module(tmp_path)


def _summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run" / "summary.json").read_text())


def test_an_own_network_on_photographs(command: Command, own: str, tmp_path: Path) -> None:
    """Its answers are objects with logits, it has 1000 outputs, and the folder two classes."""
    words = (
        f"audit --model {own}:photographs --data photos --size 32 --mode train --attack "
        "inverting-gradients:steps=100,restarts=1"
    )
    code, out, err = command(*words.split(), *QUICK)
    assert code in (0, 3), err
    assert "\nGrade " in out
    assert (tmp_path / "run" / "report.html").exists()
    (cell,) = _summary(tmp_path)["cells"]
    assert (cell["status"], cell["n"], cell["server"], cell["rounds"]) == ("ok", 1, "honest", 1)
    assert cell["trained_scores"] == {}
    assert any("has no train sub-folder" in row for row in _summary(tmp_path)["not_tested"])
    assert "data:image/png" not in (tmp_path / "run" / "report.html").read_text(), "photographs are private"


def test_a_table_comes_back_and_standard_output_is_json_alone(command: Command, own: str, tmp_path: Path) -> None:
    words = f"audit --model {own}:rows --data rows.npz --bounds none --attack fc-inversion --json"
    code, out, err = command(*words.split(), *QUICK)
    assert code == 0, err
    (cell,) = json.loads(out)["cells"]
    assert cell["scores"]["psnr"][0] > 80


def test_an_option_may_add_code_to_a_file_that_has_none(command: Command, own: str, tmp_path: Path) -> None:
    (tmp_path / "audit.yaml").write_text("attacks: [fc-inversion]\nmodels: [mlp]\n")
    code, _, err = command("audit", "--config", "audit.yaml", "--model", f"{own}:fails", *QUICK)
    assert code == 2
    assert "KeyError: 'no such layer'" in err, "it ran"
    (tmp_path / "audit.yaml").write_text(f"models: ['{own}:fails']\n")
    code, _, err = command("audit", "--config", "audit.yaml", *QUICK)
    assert code == 2
    assert "KeyError" not in err
    assert "never from a" in err


def _bad(own: str) -> dict[str, tuple[tuple[str, ...], int, str]]:
    rows = ("--model", f"{own}:rows", "--bounds", "none")
    table = ("--data", "rows.npz", "--bounds", "none", "--model")
    return {
        "raises": ((*table, f"{own}:fails"), 2, "KeyError"),
        "needs an argument": ((*table, f"{own}:needs"), 2, "missing 1 required positional argument"),
        "no module": ((*table, f"{own}:nothing"), 2, "must return a torch.nn.Module, got int"),
        "no function": ((*table, f"{own}:absent"), 2, "absent"),
        "weights at random": ((*table, f"{own}:unseeded"), 2, "builds other weights at each call"),
        "weights of another": ((*table, f"{own}:rows", "--weights", "other.npz"), 4, "other.npz"),
        "weights missing": ((*table, f"{own}:rows", "--weights", "gone.pt"), 4, "gone.pt"),
        "wrong input": (
            ("--data", "photos", "--size", "8", "--model", f"{own}:rows"),
            4,
            "does not accept inputs of shape",
        ),
        "list of pairs": ((*rows, "--data", f"{own}:ragged"), 2, "returned a list"),
        "shapes differ": ((*rows, "--data", f"{own}:ragged_set"), 4, "bring all to one shape"),
        "empty folder": ((*rows[:2], "--data", "empty", "--size", "8"), 2, "no pictures found"),
        "no arrays": ((*rows, "--data", "other.npz"), 4, "expected arrays inputs and targets"),
        "no such file": ((*rows, "--data", "gone.npz"), 4, "gone.npz"),
        "size": ((*rows, "--data", "photos", "--size", "32y"), 2, "--size must be a side or height x width"),
        "optimiser": ((*rows, "--data", "rows.npz", "--local", "lr=0.1,optimiser=adm"), 2, "Did you mean 'adam'?"),
        "local setting": ((*rows, "--data", "rows.npz", "--local", "lr=0.1,momentun=1"), 2, "Did you mean 'momentum'?"),
        "local without effect": ((*rows, "--data", "rows.npz", "--local", "lr=0.1,eps=1e-3"), 2, "eps has no effect"),
        "local rate": ((*rows, "--data", "rows.npz", "--local", "epochs=2"), 2, "add lr="),
        "local twice": ((*rows, "--data", "rows.npz", "--local", "lr=1,batch=2,batch_size=3"), 2, "batch_size twice"),
        "local form": ((*rows, "--data", "rows.npz", "--local", "fast"), 2, "write name=value"),
        "mode": ((*rows, "--data", "rows.npz", "--mode", "trian"), 2, "'train'"),
    }


@pytest.mark.parametrize("case", list(_bad("m")))
def test_bad_input_is_one_sentence(command: Command, own: str, tmp_path: Path, case: str) -> None:
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "other.npz", a=np.zeros((2, 2), np.float32))
    options, expected, needle = _bad(own)[case]
    code, out, err = command("audit", "--attack", "fc-inversion", *options, *QUICK)
    assert (code, out) == (expected, "")
    assert needle in err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


def test_local_training_is_read_with_commas_in_values(command: Command, own: str, tmp_path: Path) -> None:
    words = (
        f"audit --model {own}:rows --data rows.npz --bounds none --attack fc-inversion --batch-size 2 "
        "--local lr=0.01,epochs=2,batch=1,optimiser=adam,betas=0.8,0.99,shuffle=true"
    )
    code, _, err = command(*words.split(), *QUICK)
    assert code in (0, 3), err
    local = _summary(tmp_path)["cells"][0]["local"]
    assert (local["epochs"], local["batch_size"], local["optimiser"]) == (2, 1, "adam")
    assert (local["betas"], local["shuffle"]) == ([0.8, 0.99], True)
    assert "2 local epochs of 1" in (tmp_path / "run" / "report.html").read_text()
