"""`leakscope attack` on a user's own files: what is refused, with which exit code, and what is left on disk."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from leakscope import LocalTraining, SharedUpdate, save_update

Command = Callable[..., tuple[int, str, str]]

MODULE = """
import torch
from torch import nn

def net(channels=1):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * 16, 12), nn.Sigmoid(), nn.Linear(12, 10))

def build():
    torch.manual_seed(0)
    return net()

def two_channels():
    torch.manual_seed(0)
    return net(2)

def drawn():
    return net()

def noisy_buffer():
    network = build()
    torch.seed()
    network.register_buffer("mask", torch.rand(3))
    return network

SHARED = build()

def shared():
    return SHARED

def needs(count):
    return net(count)

def raises():
    raise KeyError("no such layer")

def leaves():
    raise SystemExit(0)

def wrong():
    return [1]

number = 3
"""


def build(channels: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * 16, 12), nn.Sigmoid(), nn.Linear(12, 10))


def gradient(shape: tuple[int, ...] = (1, 4, 4), *, count: int = 1) -> dict[str, torch.Tensor]:
    network = build(shape[0] if len(shape) == 3 else 1)
    inputs = torch.rand((count, *shape), generator=torch.Generator().manual_seed(1))
    loss = nn.functional.cross_entropy(network(inputs), torch.arange(count))
    names = [name for name, _ in network.named_parameters()]
    return dict(zip(names, torch.autograd.grad(loss, list(network.parameters())), strict=True))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module `mynet`, a plain gradient of one example, and the weights; we are in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mynet.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("def build(:\n    pass\n")
    safetensors.torch.save_file(gradient(), tmp_path / "g.safetensors")
    safetensors.torch.save_file(build().state_dict(), tmp_path / "net.safetensors")
    for name in ("mynet", "broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.fixture
def attack(command: Command, here: Path) -> Command:
    def run(
        *words: str,
        model: str = "mynet:build",
        update: str = "g.safetensors",
        shape: str = "1,4,4",
        name: str = "fc-inversion",
    ) -> tuple[int, str, str]:
        return command(
            "attack", update, "--model", model, "--input-shape", shape, "--attack", name, "--out", "out", *words
        )

    return run


@pytest.mark.parametrize(
    ("model", "needles"),
    [
        ("mynet:needs", ("TypeError", "missing 1 required positional argument", "without arguments")),
        ("mynet:raises", ("KeyError", "no such layer", "mynet.py, line 3", "without arguments")),
        ("mynet:leaves", ("SystemExit",)),
        ("mynet:number", ("cannot be called", "int", "without arguments")),
        ("mynet:wrong", ("must return a torch.nn.Module", "list")),
        ("mynet:absent", ("AttributeError", "absent")),
        ("broken:build", ("SyntaxError", "broken.py", "without arguments")),
        ("nowhere_to_be_found:build", ("ModuleNotFoundError",)),
        (":build", ("ValueError",)),
    ],
)
def test_errors_of_the_users_module_are_one_line_and_exit_2(
    attack: Command, here: Path, model: str, needles: tuple[str, ...]
) -> None:
    code, _, err = attack(model=model)
    assert code == 2
    assert err.startswith("leakscope: ")
    assert err.count("\n") == 1
    for needle in (repr(model), *needles):
        assert needle in err
    assert not (here / "out").exists()


@pytest.mark.parametrize("model", ["mynet:drawn", "mynet:noisy_buffer", "mynet:shared"])
def test_an_own_network_that_may_be_another_each_time_needs_weights(attack: Command, here: Path, model: str) -> None:
    code, _, err = attack(model=model)
    assert code == 2
    assert "--weights" in err
    assert "--before" in err
    assert not (here / "out").exists()


def test_random_weights_do_not_matter_where_weights_are_given(attack: Command) -> None:
    assert attack("--weights", "net.safetensors", model="mynet:drawn")[0] == 0
    assert attack(model="mynet:build")[0] == 0, "a seeded network needs none"


def test_profile_refuses_random_weights_too(command: Command, here: Path) -> None:
    code, _, err = command("profile", "--model", "mynet:drawn")
    assert code == 2
    assert "--weights" in err


def test_images_of_an_earlier_result_do_not_stay(attack: Command, here: Path) -> None:
    safetensors.torch.save_file(gradient(count=3), here / "three.safetensors")
    short = "inverting-gradients:steps=2,restarts=1"
    attack("--scenario", "C", "--num-examples", "3", update="three.safetensors", name=short)
    assert len(list((here / "out").glob("image-*.png"))) == 3
    (here / "out" / "image-9999.png").write_text("of someone else")
    (here / "out" / "mine.txt").write_text("of someone else")
    assert attack()[0] == 0
    assert sorted(path.name for path in (here / "out").iterdir()) == [
        "image-0000.png",
        "image-9999.png",
        "mine.txt",
        "report.html",
        "result.json",
        "results.csv",
        "summary.json",
    ]


def test_a_listed_name_outside_the_folder_is_not_removed(attack: Command, here: Path) -> None:
    (here / "out").mkdir()
    (here / "out" / "result.json").write_text(json.dumps({"images": ["../g.safetensors", "notes.txt", 4]}))
    (here / "out" / "notes.txt").write_text("kept")
    assert attack()[0] == 0
    assert (here / "g.safetensors").exists()
    assert (here / "out" / "notes.txt").exists()


def test_an_attack_that_fails_leaves_the_earlier_result(
    attack: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attack()[0] == 0
    before = {path.name: path.read_bytes() for path in (here / "out").iterdir()}

    def full(*_: object, **__: object) -> None:
        from leakscope.errors import StorageError

        raise StorageError("the disk is full")

    another = {name: value * torch.rand_like(value) for name, value in gradient().items()}
    safetensors.torch.save_file(another, here / "another.safetensors")
    monkeypatch.setattr("leakscope.files.write_atomic", full)
    assert attack(update="another.safetensors")[0] == 2
    assert {path.name: path.read_bytes() for path in (here / "out").iterdir()} == before


@pytest.mark.parametrize("place", ["file", "file/below", "result"])
def test_an_impossible_out_is_found_before_the_attack(
    attack: Command, here: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (here / "file").write_text("")
    (here / "result").mkdir()
    (here / "result" / "result.json").write_text("[]")

    def never(*_: object) -> None:
        pytest.fail("the attack ran")

    monkeypatch.setattr("leakscope.progress.count_steps", never)
    code, _, err = attack("--out", place)
    assert code == 2
    assert "choose another" in err


def test_a_refused_attack_leaves_no_folder(attack: Command, here: Path) -> None:
    code, _, _ = attack("--out", "deep/down", name="adam-l1")
    assert code == 2
    assert not (here / "deep").exists()


@pytest.mark.parametrize(("shape", "model"), [((2, 4, 4), "mynet:two_channels"), ((16,), "mynet:build")])
def test_inputs_that_are_no_pictures_are_saved_as_tensors(
    attack: Command, here: Path, shape: tuple[int, ...], model: str
) -> None:
    safetensors.torch.save_file(gradient(shape), here / "other.safetensors")
    code, out, err = attack(update="other.safetensors", model=model, shape=",".join(map(str, shape)))
    assert code == 0, err
    result = json.loads((here / "out" / "result.json").read_text())
    assert result["images"] == []
    assert result["inputs"] == "inputs.safetensors"
    assert "inputs.safetensors" in out
    saved = safetensors.torch.load_file(here / "out" / "inputs.safetensors")["inputs"]
    truth = torch.rand((1, *shape), generator=torch.Generator().manual_seed(1))
    assert torch.allclose(saved, truth, atol=1e-4)
    assert attack()[0] == 0
    assert not (here / "out" / "inputs.safetensors").exists(), "a later result of pictures does not list it"


@pytest.mark.parametrize(
    ("words", "needles"),
    [
        (("--labels", "0"), ("scenario E withholds", "--labels", "A or B")),
        (("--labels", "0", "--scenario", "C"), ("scenario C withholds", "A or B")),
        (("--lr", "0.1", "--kind", "delta"), ("scenario E withholds", "--lr", "A or B or C")),
        (("--num-examples", "1"), ("scenario E withholds", "--num-examples", "A or B or C or D")),
        (("--lr", "0.1", "--scenario", "C"), ("--kind delta", "--kind gradient")),
        (("--lr", "0.1", "--scenario", "C", "--kind", "gradient"), ("--lr", "no use")),
        (("--local-steps", "2", "--scenario", "C"), ("--local-steps", "--lr")),
        (("--local-batch", "2", "--scenario", "C"), ("--local-batch", "--lr")),
        (("--before", "net.safetensors", "--kind", "gradient"), ("gradient", "delta")),
        (("--labels", "12", "--scenario", "B"), ("--labels 12", "0…9")),
        (("--labels", "1,2", "--scenario", "B", "--num-examples", "1"), ("--labels 1,2", "one label per example")),
    ],
)
def test_options_without_effect_and_wrong_ones_exit_2(
    attack: Command, here: Path, words: tuple[str, ...], needles: tuple[str, ...]
) -> None:
    code, _, err = attack(*words)
    assert code == 2
    for needle in needles:
        assert needle in err
    assert not (here / "out").exists()


def test_a_file_that_says_gradient_has_no_use_for_a_rate(attack: Command, here: Path) -> None:
    save_update(here / "g.safetensors", SharedUpdate("gradient", gradient(), 1))
    code, _, err = attack("--lr", "0.1", "--scenario", "C")
    assert code == 2
    assert "no use" in err


def test_a_rate_is_taken_for_a_delta_however_it_is_declared(attack: Command, here: Path) -> None:
    delta = {name: -0.1 * value for name, value in gradient().items()}
    save_update(here / "said.safetensors", SharedUpdate("delta", delta, 1))
    save_update(here / "known.safetensors", SharedUpdate("delta", delta, 1, LocalTraining(0.1)))
    safetensors.torch.save_file(delta, here / "plain.safetensors")
    after = {name: value + delta[name] for name, value in build().state_dict().items()}
    safetensors.torch.save_file(after, here / "after.safetensors")
    recipe = ("--scenario", "C", "--lr", "0.1", "--num-examples", "1")
    assert attack(*recipe, update="said.safetensors")[0] == 0
    assert attack(*recipe, update="known.safetensors")[0] == 0
    assert attack(*recipe, "--kind", "delta", update="plain.safetensors")[0] == 0
    assert attack(*recipe, "--before", "net.safetensors", update="after.safetensors")[0] == 0


def test_labels_are_used_where_the_scenario_grants_them(attack: Command, here: Path) -> None:
    code, _, err = attack("--labels", "0", "--scenario", "B")
    assert code == 0, err
    assert json.loads((here / "out" / "result.json").read_text())["labels"] == [0]


def test_an_update_of_zeros_is_a_bad_file(attack: Command, here: Path) -> None:
    zeros = {name: torch.zeros_like(value) for name, value in gradient().items()}
    safetensors.torch.save_file(zeros, here / "zeros.safetensors")
    code, _, err = attack(update="zeros.safetensors")
    assert code == 4
    assert "zeros.safetensors: every tensor of the update is zero" in err


def test_a_missing_tensor_names_the_option(attack: Command, here: Path) -> None:
    some = gradient()
    del some["1.bias"]
    safetensors.torch.save_file(some, here / "some.safetensors")
    code, _, err = attack(update="some.safetensors")
    assert code == 4
    assert "--partial" in err
