"""`make extras`: every extra has one place that imports it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("packaging")
SCRIPT = Path(__file__).parents[2] / ".ci" / "extras.py"


@pytest.fixture(scope="module")
def extras():
    spec = importlib.util.spec_from_file_location("extras_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_importers_are_found_at_the_top_and_inside_functions(extras):
    assert extras.importers("optuna") == ["leakscope.defences.transforms.optuna_search"]
    assert extras.importers("lpips") == ["leakscope.metrics.lpips"]
    assert "leakscope.flower" in extras.importers("flwr")


def test_flower_is_imported_by_the_modules_of_one_package_alone(extras):
    assert {module.split(".")[1] for module in extras.importers("flwr")} == {"flower"}


def test_two_places_are_one_too_many(extras, monkeypatch):
    monkeypatch.setattr(extras, "importers", lambda package: ["leakscope.rng", "leakscope.rng_other"])
    monkeypatch.setitem(sys.modules, "leakscope.rng_other", sys)
    with pytest.raises(ImportError, match=r"imported by leakscope.rng and by leakscope.rng_other"):
        extras.check_importers("optuna")
    monkeypatch.setattr(extras, "importers", lambda package: ["leakscope.client", "leakscope.client.step"])
    assert extras.check_importers("optuna") == "imported by leakscope.client"
