"""`leakscope train --seal`: the same training over updates that are sealed on their way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from leakscope.files import load_state

Command = Callable[..., tuple[int, str, str]]
QUICK = (
    *("train", "--data", "digits", "--model", "mlp", "--clients", "2", "--examples", "60", "--test-examples", "40"),
    *("--local", "lr=0.3,epochs=1,batch=10", "--rounds", "1", "--quiet"),
)


def test_sealed_and_plain_training_end_alike(command: Command, tmp_path: Path) -> None:
    pytest.importorskip("tenseal")
    plain, sealed = tmp_path / "plain", tmp_path / "sealed"
    for folder, more in ((plain, ()), (sealed, ("--seal", "ckks"))):
        code, _, err = command(*QUICK, *more, "--out", str(folder))
        assert (code, err) == (0, "")
    one, other = (load_state(folder / "model.safetensors") for folder in (plain, sealed))
    assert max(float((value - other[name]).abs().max()) for name, value in one.items()) < 1e-6
    sent = [json.loads((folder / "result.json").read_text())["trainings"] for folder in (plain, sealed)]
    bytes_up = [next(iter(trainings.values()))[0]["bytes_up"] for trainings in sent]
    assert bytes_up[1] > 5 * bytes_up[0]


def test_an_unknown_scheme_is_refused_before_anything_is_written(command: Command, tmp_path: Path) -> None:
    code, _, err = command(*QUICK, "--seal", "pailler", "--out", str(tmp_path / "run"))
    assert code == 2
    assert "Did you mean 'paillier'?" in err
    assert not (tmp_path / "run").exists()
