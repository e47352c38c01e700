"""`leakscope attack` exits 3 where a result does not explain the update, and prints the reason."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from leakscope.cli import main
from leakscope.files import save_update
from leakscope.types import SharedUpdate

MODULE = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Sigmoid(), nn.Linear(12, 10))
"""

Run = Callable[..., tuple[int, str]]


def gradient() -> dict[str, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Sigmoid(), nn.Linear(12, 10))
    inputs = torch.rand((1, 1, 4, 4), generator=torch.Generator().manual_seed(1))
    loss = nn.functional.cross_entropy(network(inputs), torch.tensor([3]))
    names = [name for name, _ in network.named_parameters()]
    return dict(zip(names, torch.autograd.grad(loss, list(network.parameters())), strict=True))


@pytest.fixture
def attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "declared_net", raising=False)
    (tmp_path / "declared_net.py").write_text(MODULE)

    def run(tensors: dict[str, Tensor], *, name: str, words: tuple[str, ...] = ()) -> tuple[int, str]:
        save_update(tmp_path / "u.safetensors", SharedUpdate("gradient", tensors, num_examples=1))
        common = ("--model", "declared_net:build", "--input-shape", "1,4,4", "--scenario", "C", "--out", "out")
        monkeypatch.setattr(sys, "argv", ["leakscope", "attack", "u.safetensors", *common, "--attack", name, *words])
        with pytest.raises(SystemExit) as stop:
            main()
        code = stop.value.code
        return (code if isinstance(code, int) else 0), capsys.readouterr().out

    return run


def test_a_right_declaration_exits_0_with_its_fit(attack: Run):
    code, out = attack(gradient(), name="fc-inversion", words=("--json",))
    result = json.loads(out)
    assert (code, result["status"]) == (0, "ok")
    assert result["fit"]["explained"] == pytest.approx(1.0, abs=1e-4)
    assert result["fit"]["unrelated"] < result["fit"]["explained"]


def test_a_wrong_one_exits_3_with_the_line(attack: Run):
    code, out = attack({name: 7 * value for name, value in gradient().items()}, name="fc-inversion")
    assert code == 3
    assert "unexplained" in out
    assert "at 7 times the length" in out
    assert "explains 100 % of the update" in out


def test_a_run_of_five_steps_exits_3(attack: Run):
    code, out = attack(gradient(), name="inverting-gradients:steps=5")
    assert code == 3
    assert "unfinished" in out or "diverged" in out
