"""The large run on paper: list scheduling by one process that does one thing at a time."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from types import ModuleType

import pytest

Load = Callable[[str], ModuleType]


def test_workers_share_cells_and_the_start_counts_once(load: Load) -> None:
    schedule = load("runner_overhead").schedule
    assert schedule([2.0] * 4, workers=2, each=0.0, start=1.0) == 5.0
    assert schedule([3.0, 1.0, 1.0], workers=2, each=0.0, start=0.0) == 3.0


def test_one_process_hands_out_one_cell_at_a_time(load: Load) -> None:
    schedule = load("runner_overhead").schedule
    # A hundred workers wait for it: cells of 1 s behind one another every half second.
    assert schedule([1.0] * 10, workers=100, each=0.5, start=0.0) == pytest.approx(10 * 0.5 + 1.0)
    # One worker waits for nobody: the overhead comes on top.
    assert schedule([1.0] * 10, workers=1, each=0.5, start=0.0) == pytest.approx(10 * 1.5)


def test_a_run_on_paper_adds_up(load: Load) -> None:
    measured = {"per_cell_ms": {"ray": 10.0}, "first_cell_s": {"ray": 5.0}}
    told = argparse.Namespace(seed=0, paper_cells=10_000, nodes=100, workers_per_node=1)
    found = load("runner_overhead").project([6.0], measured, told)
    assert found["one_worker_h"] == pytest.approx(10_000 * 6 / 3600, abs=0.01)
    # A hundred rounds of 6 s and 10 ms, the start, and the first hundred handed out one by one.
    assert found["wall_min"] == pytest.approx((5 + 100 * 6.01 + 99 * 0.01) / 60, abs=0.02)
    assert found["most_workers_kept_busy"] == 600
    assert 0.9 < found["busy_share"] < 1
