"""One loader of networks: what it builds, what it refuses, and whose code it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from leakscope import models
from leakscope.errors import BadInputError, UnsuitableError, UsageError

MODULE = """
import copy
import torch
from torch import nn

open("imported", "w").close()

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))

class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = build()

    def forward(self, inputs):
        return self.net(inputs)

class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.calls = build(), 0

    def forward(self, inputs):
        self.calls += 1
        return self.net(inputs) * self.calls

class Raising(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = build()

    def forward(self, inputs):
        return {}["absent"]

class Uncopied(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = build()

    def __deepcopy__(self, memo):
        raise RuntimeError("there is only one")

def prints():
    print("not for standard output")
    return build()
"""
SHAPE = (1, 4, 4)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ownnet", raising=False)
    (tmp_path / "ownnet.py").write_text(MODULE)
    return tmp_path


def load(name: str, **options: object) -> torch.nn.Module:
    return models.load_network(name, shape=SHAPE, allow_code=True, **options)  # type: ignore[arg-type]


def test_a_reference_network_is_built_for_the_inputs() -> None:
    network = models.load_network("mlp", shape=(1, 8, 8), classes=7, seed=3)
    expected = models.build("mlp", num_classes=7, in_channels=1, image_size=8, seed=3)
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in network.state_dict().items())
    wide = models.load_network("mlp", shape=(1, 8, 8), options={"hidden": [5]})
    assert dict(wide.named_parameters())["fc1.weight"].shape == (5, 64)


@pytest.mark.parametrize("shape", [(16,), (1, 8, 4, 4)])
def test_reference_networks_need_images(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"package\.module:function"):
        models.load_network("mlp", shape=shape)


def test_code_never_runs_unless_the_caller_allows_it(here: Path) -> None:
    with pytest.raises(UsageError, match="never from a configuration file"):
        models.load_network("ownnet:build", shape=SHAPE)
    assert not (here / "imported").exists()
    assert load("ownnet:build") is not None
    assert (here / "imported").exists()


@pytest.mark.parametrize(
    "options", [{"classes": 3}, {"normalise": "cifar10"}, {"seed": 0}, {"options": {"hidden": [3]}}]
)
def test_options_of_reference_networks_are_refused_for_own_ones(here: Path, options: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"no effect on 'ownnet:build'"):
        load("ownnet:build", **options)
    assert not (here / "imported").exists()


def test_a_seed_has_no_effect_beside_weights(here: Path) -> None:
    save_file(models.build("mlp", in_channels=1, image_size=4).state_dict(), here / "w.safetensors")
    with pytest.raises(UsageError, match="--model-seed has no effect"):
        load("mlp", weights="w.safetensors", seed=0)
    assert load("mlp", weights="w.safetensors") is not None


def test_weights_of_the_bare_network_fit_a_wrapped_one(here: Path) -> None:
    state = {name: value + 1 for name, value in load("ownnet:build").state_dict().items()}
    save_file(state, here / "w.safetensors")
    network = load("ownnet:Wrapped", weights="w.safetensors")
    assert torch.equal(network.state_dict()["net.1.weight"], state["1.weight"])


def test_a_network_with_a_state_of_its_own_is_refused(here: Path) -> None:
    with pytest.raises(UnsuitableError, match="answers the same input differently each time"):
        load("ownnet:Counting")


@pytest.mark.parametrize(("name", "reason"), [("Raising", "KeyError: 'absent'"), ("Uncopied", "there is only one")])
def test_any_error_of_the_users_network_is_one_line(here: Path, name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        load(f"ownnet:{name}")
    assert "ownnet.py, line" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_shape_that_does_not_fit_is_named(here: Path) -> None:
    with pytest.raises(BadInputError, match=r"does not accept inputs of shape \[2, 1, 5, 5\]"):
        models.load_network("ownnet:build", shape=(1, 5, 5), allow_code=True)


def test_what_the_users_code_prints_leaves_standard_output_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load("ownnet:prints")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "not for standard output" in printed.err
