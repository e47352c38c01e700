"""Cells on Ray: the same endings, the same bytes, and a cluster that nobody else reaches and that leaves nothing."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sweep_workloads as workloads

from leakscope.runner import Cell, Event, EventKind, Execute, SweepResult
from leakscope.runner.events import Interrupts
from leakscope.runner.ledger import open_ledger
from leakscope.runner.limits import Limits
from leakscope.runner.ray_workers import LocalCluster, RayCluster, RayPool
from leakscope.runner.run import run_in
from leakscope.types import Status

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
    pytest.mark.skipif("ray" in sys.modules, reason="another test has imported Ray; run this file by itself"),
    # Ray leaves sockets and files to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]

ODD = {
    "nan": Status.NAN,
    "bad": Status.ERROR,
    "refuse": Status.REFUSED,
    "exit": Status.ERROR,
    "die": Status.ERROR,
    "die-once": Status.OK,
    "hang": Status.TIMEOUT,
}
WORK = [workloads.cell(seed=seed) for seed in range(4)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    found = LocalCluster(2)
    try:
        yield found
    finally:
        found.close()


class KeptPool(RayPool):
    """Leaves the cluster to the next test."""

    def close(self) -> None:
        return


def sweep(
    cluster: RayCluster, cells: list[Cell], folder: Path, *, execute: Execute = workloads.execute, **limits: Any
) -> tuple[SweepResult, list[Event]]:
    events: list[Event] = []
    with KeptPool(execute, cluster) as pool, open_ledger(folder) as ledger, Interrupts() as interrupts:
        options = {"limits": Limits(**limits), "interrupts": interrupts, "on_event": events.append}
        return run_in(ledger, cells, pool, **options), events


def hashes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "cells").iterdir()}


def gone(process: int, *, seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if ") Z " in Path(f"/proc/{process}/stat").read_text():
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_every_ending_is_a_status_of_its_own_cell(cluster: RayCluster, tmp_path: Path, side_file: Path) -> None:
    cells = [*(workloads.cell(do) for do in ODD), *WORK]
    result, events = sweep(cluster, cells, tmp_path / "run", workers=2, timeout=4)
    assert [outcome.status for outcome in result.finished] == [*ODD.values(), *[Status.OK] * len(WORK)]
    assert workloads.executions() == {**dict.fromkeys(workloads.traces(), 1), "die": 2, "die-once": 2}
    found = dict(zip(ODD, result.finished, strict=False))
    assert found["bad"].record["message"] == "expected a whole file, got half of one; send it again"
    assert found["bad"].record["where"].startswith("sweep_workloads:")
    assert found["die"].record == {"error": "WorkerDied", "message": "worker died, 2 times"}
    assert found["hang"].record == {"error": "Timeout", "message": "no result within 4 s"}
    assert sorted(event.name for event in events if event.kind is EventKind.RETRY) == ["die", "die-once"]
    assert gone(int(Path(f"{side_file}.child").read_text())), "what the cell had started"
    assert all(gone(process) for process in workloads.processes())
