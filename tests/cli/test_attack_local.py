"""`leakscope attack --local`: what a diagnosis asks to declare can be declared."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from leakscope.cli import main
from leakscope.cli.loading import local_training
from leakscope.cli.local_options import parse_local, read_local
from leakscope.client import share
from leakscope.errors import UsageError
from leakscope.files import save_update
from leakscope.types import Batch, LocalTraining, SharedUpdate

MODULE = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 32), nn.Sigmoid(), nn.Linear(32, 10))
"""
ADAM = LocalTraining(0.001, epochs=2, batch_size=1, optimiser="adam")
Run = Callable[..., tuple[int, str]]


def update(local: LocalTraining, *, declared: LocalTraining | None = None) -> SharedUpdate:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(36, 32), nn.Sigmoid(), nn.Linear(32, 10))
    inputs = torch.rand((1, 1, 6, 6), generator=torch.Generator().manual_seed(1))
    made = share(network, Batch(inputs, torch.tensor([3])), local=local, seed=0)
    assert isinstance(made, SharedUpdate)
    return SharedUpdate("delta", made.tensors, num_examples=1, local=declared)


@pytest.fixture
def attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "trained_net", raising=False)
    (tmp_path / "trained_net.py").write_text(MODULE)

    def run(shared: SharedUpdate, *words: str) -> tuple[int, str]:
        save_update(tmp_path / "u.safetensors", shared)
        common = ("--model", "trained_net:build", "--input-shape", "1,6,6", "--scenario", "C", "--out", "out")
        steps = ("--attack", "inverting-gradients:steps=50")
        monkeypatch.setattr(sys, "argv", ["leakscope", "attack", "u.safetensors", *common, *steps, *words])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        code = stop.value.code
        return (code if isinstance(code, int) else 0), printed.out + printed.err

    return run


def test_what_the_diagnosis_asks_for_can_be_declared(attack: Run):
    """Also of a file that says something else of its training."""
    shared = update(ADAM, declared=LocalTraining(0.01, epochs=2, batch_size=1))
    code, out = attack(shared, "--json")
    wrong = json.loads(out)
    assert (code, wrong["status"]) == (3, "unexplained")
    assert "declare optimiser='adam'" in wrong["fit"]["diagnosis"]
    _, out = attack(shared, "--local", "lr=0.001,epochs=2,batch=1,optimiser=adam", "--json")
    right = json.loads(out)
    assert right["fit"]["explained"] > wrong["fit"]["explained"] + 0.2
    assert "as Adam moves them" not in " ".join(right["notes"])


def test_momentum_that_was_forgotten_is_declared(attack: Run):
    shared = update(LocalTraining(0.05, steps=4, momentum=0.9))
    code, out = attack(shared, "--lr", "0.05", "--local-steps", "4")
    assert code == 3
    assert "momentum=0.9" in out
    code, out = attack(shared, "--local", "lr=0.05,steps=4,momentum=0.9")
    assert code == 0, out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--lr", "0.1"), "--local says how the client trained, and so does --lr; put it into --local"),
        (("--local-steps", "2"), "and so does --local-steps"),
        (("--local-batch", "2"), "and so does --local-batch"),
        (("--scenario", "E"), "so --local has no use in it"),
        (("--kind", "gradient"), "is read as a gradient"),
    ],
)
def test_what_has_no_effect_is_refused(attack: Run, words: tuple[str, ...], said: str):
    code, out = attack(update(LocalTraining(0.1)), "--local", "lr=0.1,steps=2", *words)
    assert code == 2
    assert said in out


def test_one_parser_reads_it_for_both_commands():
    text = "lr=0.01,epochs=2,batch=8,optimiser=adam,betas=0.8,0.9"
    expected = LocalTraining(0.01, epochs=2, batch_size=8, optimiser="adam", betas=(0.8, 0.9))
    assert read_local(text) == LocalTraining(**parse_local(text)) == expected
    assert local_training(text, lr=None, steps=None, batch=None) == expected
    assert local_training(None, lr=0.1, steps=3, batch=None) == LocalTraining(0.1, 3, 1)
    for bad, said in (("lr=fast", "--local: lr: "), ("lr=0.1,optimiser=adan", "optimiser"), ("epochs=2", "add lr=")):
        with pytest.raises(UsageError, match=said):
            read_local(bad)
