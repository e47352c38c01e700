"""A residual network of the user's own is known by what it computes, and gets the attacks of residual networks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from leakscope.audits import parse_config
from leakscope.audits.plan import make_plan
from leakscope.audits.run import _continue_run, _keep_config, publish
from leakscope.models import build
from leakscope.networks import is_residual_with_stored_statistics

MODULE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, skip, norm=True):
        super().__init__()
        self.skip, self.first = skip, nn.Conv2d(1, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4) if norm else nn.Identity()
        self.head = nn.Linear(4 * 64, 10)

    def forward(self, x):
        x = torch.relu(self.first(x))
        y = self.norm(self.second(x))
        if self.skip == "plus":
            y = x + y
        elif self.skip == "inplace":
            y += x
        elif self.skip == "bias":
            y = y + torch.ones(4, 1, 1)
        return self.head(torch.relu(y).flatten(1))

def residual():
    torch.manual_seed(0)
    return Net("plus")

def plain():
    torch.manual_seed(0)
    return Net("none")
"""


def _net(skip: str, *, norm: bool = True) -> nn.Module:
    space: dict = {}
    exec(compile(MODULE, "ownresidual", "exec"), space)
    return space["Net"](skip, norm).eval()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ownresidual", raising=False)
    (tmp_path / "ownresidual.py").write_text(MODULE)
    return "ownresidual"


@pytest.mark.parametrize(
    ("skip", "norm", "expected"),
    [
        ("plus", True, True),
        ("inplace", True, True),
        ("none", True, False),
        ("bias", True, False),
        ("plus", False, False),
    ],
)
def test_a_residual_network_is_told_by_what_it_computes(skip: str, norm: bool, expected: bool) -> None:
    assert is_residual_with_stored_statistics(_net(skip, norm=norm), (1, 8, 8)) is expected


def test_batch_statistics_and_other_networks_do_not_count() -> None:
    assert not is_residual_with_stored_statistics(_net("plus").train(), (1, 8, 8))
    assert is_residual_with_stored_statistics(build("resnet20", num_classes=10).eval(), (3, 32, 32))
    assert not is_residual_with_stored_statistics(build("convnet", num_classes=10).eval(), (3, 32, 32))
    model = _net("plus")
    before = torch.random.get_rng_state()
    is_residual_with_stored_statistics(model, (1, 8, 8))
    assert torch.equal(before, torch.random.get_rng_state())


def _plan(**settings: object):
    config = parse_config({"victims": 1, "utility": None, **settings}, allow_code=True)
    return config, make_plan(config)


def test_a_network_of_ones_own_gets_the_stronger_attack_unless_attacks_are_named(own: str) -> None:
    stronger = ("fc-inversion", "inverting-gradients", "agic:schedule=held")
    assert _plan(models=[f"{own}:residual"])[1].specs == stronger
    assert [cell.attack for cell in _plan(models=[f"{own}:residual"])[1].attacks] == list(stronger)
    assert _plan(models=[f"{own}:plain"])[1].specs == stronger[:2]
    assert _plan(models=[f"{own}:residual"], mode="train")[1].specs == stronger[:2]
    assert _plan(models=[f"{own}:residual"], attacks=["fc-inversion"])[1].specs == ("fc-inversion",)


def test_the_same_command_continues_the_run(own: str, tmp_path: Path) -> None:
    config, plan = _plan(models=[f"{own}:residual"])
    settings = config.model_copy(update={"attacks": plan.specs})
    _keep_config(tmp_path, publish(settings, plan.inputs))
    again, second = _plan(models=[f"{own}:residual"])
    continued = _continue_run(tmp_path, again.model_copy(update={"attacks": second.specs}), second.inputs)
    assert continued.attacks == plan.specs
    assert [cell.label for cell in second.attacks] == [cell.label for cell in plan.attacks]
