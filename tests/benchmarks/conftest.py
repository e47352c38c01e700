"""The benchmarks are scripts, not a package: load their modules the way the scripts see them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.syspath_prepend(BENCHMARKS / "peers")
    return importlib.import_module


def _worker_result(levels, *, pace=1.0, setup=0.0, returned=None, norm=2.0, grey=5.0):
    points = [
        {"evaluations": n, "cpu": setup + n * pace, "wall": 9.0 * n, "psnr": level}
        for n, level in enumerate(levels, start=1)
    ]
    seconds = setup + len(levels) * pace
    ending = levels[-1] if returned is None else returned
    extra = {"peak_mb": 500.0, "gradient_norm": norm, "grey": grey}
    return {"trajectory": points, "cpu": seconds, "wall": 2 * seconds, "psnr": ending, **extra}


@pytest.fixture
def worker_result():
    """What a worker writes: a snapshot after every evaluation."""
    return _worker_result


@pytest.fixture
def curves(load):
    return load("picture_time.curves")


@pytest.fixture
def make_run(curves):
    return lambda levels, **options: curves.read_run(_worker_result(levels, **options), len(levels))
