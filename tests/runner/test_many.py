"""Thousands of cells: nothing is counted again for each, and no outcome is kept in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sweep_workloads as workloads

from leakscope.errors import BadInputError
from leakscope.runner import dispatch, outcomes, run
from leakscope.runner.ledger import cell_path, load_cell


class Unwalked(deque[Any]):
    """A queue that nobody goes through from end to end."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("for each finished cell, all waiting ones were looked at")


def test_a_finished_cell_costs_the_same_however_many_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "deque", Unwalked)
    cells = [workloads.cell(seed=seed) for seed in range(3)]
    assert run(cells, workloads.execute, tmp_path / "run").executed == 3


def test_outcomes_are_read_when_they_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def count(directory: Path, key: str, entry: Any) -> Any:
        read.append(key)
        return load_cell(directory, key, entry)

    monkeypatch.setattr(outcomes, "load_cell", count)
    cells = [workloads.cell(seed=seed) for seed in range(3)]
    found = run(cells, workloads.execute, tmp_path / "run").outcomes
    assert read == []
    assert len(found) == 3
    last = found[-1]
    assert last is not None
    assert read == [cells[2].key]
    assert last.seconds > 0, "from the journal"
    assert [one.record for one in found[1:] if one] == [load.record for load in found if load][1:]
    cell_path(tmp_path / "run", cells[0].key).write_bytes(b"rot")
    with pytest.raises(BadInputError, match="does not hold the bytes"):
        _ = found[0]
