"""Networks and data of the user's own on the command line: used as named ones are, refused in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

Command = Callable[..., tuple[int, str, str]]

MODULE = """
import random
import torch
from torch import nn

def net(width=16):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(width, 12), nn.Sigmoid(), nn.Linear(12, 3))

def rows():
    return net(7)

class Growing(nn.Module):
    "Answers otherwise at each call."

    def __init__(self):
        super().__init__()
        self.net, self.seen = net(), []

    def forward(self, inputs):
        self.seen.append(inputs)
        return self.net(inputs) * len(self.seen)

def hooked():
    network, calls = net(), []
    def hook(module, received, output):
        calls.append(1)
        return output * len(calls)
    network.register_forward_hook(hook)
    return network

class Diced(nn.Module):
    "Draws from a generator that nobody can set."

    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, inputs):
        return self.net(inputs) + random.SystemRandom().random()

class Ends(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, inputs):
        raise SystemExit(0)

def table():
    return torch.linspace(-3, 3, 70).reshape(10, 7), torch.arange(10) % 3

def broken():
    raise KeyError("no such table")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "owncode", raising=False)
    (tmp_path / "owncode.py").write_text(MODULE)
    np.savez(
        tmp_path / "mine.npz",
        images=np.random.default_rng(0).integers(0, 256, (4, 4, 4), dtype=np.uint8),
        labels=np.arange(4) % 3,
    )
    return tmp_path


def profile(command: Command, *words: str) -> tuple[int, str, str]:
    return command("profile", "--attack", "fc-inversion", "--views", "alone", "--json", *words)


def refused(outcome: tuple[int, str, str], *needles: str, code: int = 2) -> None:
    found, out, err = outcome
    assert found == code, err
    assert out == ""
    assert err.startswith("leakscope: ")
    assert err.count("\n") == 1
    for needle in needles:
        assert needle in err


def rebuilt(outcome: tuple[int, str, str]) -> float:
    assert outcome[0] == 0, outcome[2]
    return json.loads(outcome[1])["everything"]["psnr"]


def test_own_pictures_and_an_own_network(command: Command, here: Path) -> None:
    assert rebuilt(profile(command, "--model", "owncode:net", "--data", "mine.npz", "--index", "3")) > 60


def test_a_reference_network_takes_the_classes_of_the_data(command: Command, here: Path) -> None:
    assert rebuilt(profile(command, "--model", "mlp", "--data", "mine.npz")) > 60


def test_own_rows_without_a_range(command: Command, here: Path) -> None:
    words = ("--model", "owncode:rows", "--data", "owncode:table")
    refused(profile(command, *words), "owncode:table", "--bounds none", code=4)
    assert rebuilt(profile(command, *words, "--bounds", "none")) > 60


@pytest.mark.parametrize(
    ("words", "needles"),
    [
        (("--data", "owncode:broken"), ("KeyError", "no such table", "owncode.py, line")),
        (("--data", "owncode:absent"), ("AttributeError",)),
        (("--data", "digits", "--bounds", "0,1"), ("--bounds 0,1 has no effect",)),
        (("--data", "mine.npz", "--classes", "3"), ("--classes", "no effect")),
        (("--data", "mine.npz", "--normalise", "mnist"), ("--normalise", "no effect")),
        (("--data", "mine.npz", "--model-seed", "0"), ("--model-seed", "no effect")),
    ],
)
def test_what_cannot_work_or_has_no_effect_is_refused(
    command: Command, here: Path, words: tuple[str, ...], needles: tuple[str, ...]
) -> None:
    refused(profile(command, "--model", "owncode:net", *words), *needles)


@pytest.mark.parametrize("network", ["Growing", "Diced"])
def test_a_network_that_answers_otherwise_each_time_is_one_typed_error(
    command: Command, here: Path, network: str
) -> None:
    refused(
        profile(command, "--model", f"owncode:{network}", "--data", "mine.npz"), "answers the same input differently"
    )


def test_a_hook_of_the_users_network_does_not_stand_in_the_way(command: Command, here: Path) -> None:
    assert rebuilt(profile(command, "--model", "owncode:hooked", "--data", "mine.npz")) > 60


def test_a_network_that_leaves_the_program_is_one_typed_error(command: Command, here: Path) -> None:
    refused(profile(command, "--model", "owncode:Ends", "--data", "mine.npz"), "SystemExit", "owncode.py, line")


class Payload:
    """Creates a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_weights_that_would_run_code_are_a_bad_file(command: Command, here: Path) -> None:
    torch.save({"1.weight": Payload(here / "canary")}, here / "evil.pt")
    words = ("--model", "owncode:net", "--data", "mine.npz", "--weights", "evil.pt")
    refused(profile(command, *words), "evil.pt", "nothing was run", code=4)
    assert not (here / "canary").exists()


def net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Sigmoid(), nn.Linear(12, 3))


@pytest.mark.slow
def test_profile_and_attack_take_a_wrapped_checkpoint(command: Command, here: Path) -> None:
    trained = net(5)
    state = {f"module.{name}": value for name, value in trained.state_dict().items()}
    torch.save({"epoch": 1, "state_dict": state}, here / "checkpoint.pt")
    words = ("--model", "owncode:net", "--weights", "checkpoint.pt")
    assert rebuilt(profile(command, *words, "--data", "mine.npz")) > 60
    inputs = torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    loss = nn.functional.cross_entropy(trained(inputs), torch.tensor([2]))
    names = [name for name, _ in trained.named_parameters()]
    torch.save(dict(zip(names, torch.autograd.grad(loss, list(trained.parameters())), strict=True)), here / "g.pt")
    code, out, err = command(
        "attack", "g.pt", *words, "--input-shape", "1,4,4", "--attack", "fc-inversion", "--bounds", "none", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["inputs"] == "inputs.safetensors", "numbers without a range make no picture"


@pytest.mark.parametrize(
    ("words", "needles"),
    [
        (("--before", "mine.npz", "--weights", "mine.npz"), ("--weights has no effect",)),
        (("--weights", "mine.npz", "--model-seed", "1"), ("--model-seed has no effect",)),
        (("--bounds", "3"), ("--bounds must be",)),
    ],
)
def test_attack_refuses_options_without_effect(
    command: Command, here: Path, words: tuple[str, ...], needles: tuple[str, ...]
) -> None:
    refused(command("attack", "mine.npz", "--model", "mlp", "--input-shape", "1,4,4", *words), *needles)
