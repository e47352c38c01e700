"""The defence of the how-to page, as printed there."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch

from leakscope.attack import Attack
from leakscope.attacks.idlg import idlg
from leakscope.defence import Defence
from leakscope.defences.chain import chain
from leakscope.defences.noise import gaussian_noise
from leakscope.errors import UsageError
from leakscope.matching.distances import Cosine
from leakscope.tensors import global_norm
from leakscope.testing import check_defence
from leakscope.types import LocalTraining
from tiny import batch_of, dense, flat, shared

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "add-a-defence.md"


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The page's first block of code as a module, which pickle must find by its name."""
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    module = ModuleType("unit_examples_of_the_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(code, str(PAGE), "exec"), module.__dict__)
    return module


def test_the_printed_defence_gives_every_example_the_same_length(printed):
    defence = printed.unit_examples(0.2)
    assert isinstance(defence, Defence)
    model = dense()
    one = shared(model, batch_of([1]), defence=defence)
    assert float(global_norm(one.tensors)) == pytest.approx(0.2)
    plain = shared(model, batch_of([1]))
    assert float(torch.cosine_similarity(flat(one.tensors), flat(plain.tensors), dim=0)) == pytest.approx(1.0)
    # In a chain, and in every local step.
    local = LocalTraining(0.5, steps=1, batch_size=1)
    step = shared(model, batch_of([1]), defence=chain(defence, gaussian_noise(0.0)), local=local)
    assert float(global_norm(step.tensors)) == pytest.approx(0.1)
    with pytest.raises(UsageError, match="norm > 0"):
        printed.unit_examples(0.0)


@dataclass(frozen=True)
class Revisable:
    """Stands for an attack of which only the distance is revised."""

    distance: object = None

    def revised(self, change):
        return change(self)


def test_the_printed_attacker_compares_directions(printed):
    assert printed.unit_examples().adapt(Revisable()) == Revisable(Cosine())


def test_the_printed_defence_keeps_the_contract(printed):
    if not isinstance(idlg(), Attack):
        pytest.skip("attacks cannot be revised yet")
    check_defence(printed.unit_examples())
