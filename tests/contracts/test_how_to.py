"""The attacks on the page "Add an attack" are complete and keep the contract."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from leakscope.errors import UnsuitableError
from leakscope.testing import check_attack, convolutional_problem

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-an-attack.md"
FILES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write the file at a place on the page and import it, as a plug-in would be."""

    def load(place: int) -> ModuleType:
        name = f"attack_of_the_page_{place}"
        path = tmp_path / f"{name}.py"
        path.write_text(FILES[place])
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        # By its name pickle finds the class again.
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


def test_the_recipe_of_the_page_keeps_the_contract_on_both_problems(written):
    attack = written(0).my_attack(steps=150)
    check_attack(attack, margin_db=6)
    check_attack(attack, problem=convolutional_problem(), scenario="C", margin_db=6)


def test_the_class_of_the_page_keeps_the_contract_or_says_why_not(written):
    attack = written(1).FirstRow()
    check_attack(attack, margin_db=40)
    with pytest.raises(UnsuitableError, match="needs a first layer that is linear"):
        check_attack(attack, problem=convolutional_problem(), scenario="C")


def test_every_file_on_the_page_is_tested():
    assert len(FILES) == 2
