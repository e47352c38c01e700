"""The seam between the sweep and its workers, with workers that are neither processes nor on Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import sweep_workloads as workloads

from leakscope.errors import UsageError
from leakscope.runner import Cell, CellOutcome, Event, EventKind, store
from leakscope.runner.events import Interrupts
from leakscope.runner.frames import pack_message
from leakscope.runner.ledger import open_ledger
from leakscope.runner.limits import Limits
from leakscope.runner.outcomes import SweepResult
from leakscope.runner.run import run_in
from leakscope.runner.workers import Worker, WorkerDied, WorkerPool
from leakscope.types import Status

Behaviour = Callable[[Mapping[str, Any]], bytes]


def obey(request: Mapping[str, Any]) -> bytes:
    outcome = CellOutcome(Status.OK, {"limit": request["limit_mb"]})
    data = store.pack(Cell(request["spec"], request["key"]), outcome)
    return pack_message({"status": "ok", "seconds": 1.0, "peak_mb": 2.0, "measured": {"x": 3.0}}, data)


class ToyWorker(Worker):
    """Answers in this process, as its pool's script says."""

    def __init__(self, pool: ToyPool) -> None:
        super().__init__()
        self._pool = pool
        self._request: Mapping[str, Any] | None = None
        self._told = False

    @property
    def awaited(self) -> None:
        return None

    def kill(self) -> None:
        self._pool.killed += 1

    def _send(self, request: Mapping[str, Any]) -> None:
        self._request = request

    def _receive(self) -> bytes | None:
        if not self._told:
            self._told = True
            return self._pool.hello()
        request, self._request = self._request, None
        return None if request is None else self._pool.answer(request)


class ToyPool(WorkerPool):
    """Workers that follow a script: one behaviour per cell that is handed out, obedience when it is over."""

    remedy = "Wind them up"

    def __init__(self, *script: Behaviour, hello: Callable[[], bytes] = lambda: pack_message({"private_mb": 1.0})):
        self.hello = hello
        self._script = list(script)
        self.started = self.killed = self.closed = self.waits = 0

    def answer(self, request: Mapping[str, Any]) -> bytes:
        return (self._script.pop(0) if self._script else obey)(request)

    def start(self) -> Worker:
        self.started += 1
        return ToyWorker(self)

    def wait(self, workers: Sequence[Worker], *, seconds: float) -> None:
        self.waits += 1
        assert 0 < seconds < 1
        assert len(workers) == self.started - self.killed

    def close(self) -> None:
        self.closed += 1


def die(*, hungry: bool) -> Behaviour:
    def behave(request: Mapping[str, Any]) -> bytes:
        raise WorkerDied("lost its spring", hungry=hungry)

    return behave


def sweep(pool: ToyPool, folder: Path, *, cells: int = 3, **limits: Any) -> tuple[SweepResult, list[Event]]:
    events: list[Event] = []
    grid = [workloads.cell(seed=seed) for seed in range(cells)]
    with open_ledger(folder) as ledger, Interrupts() as interrupts, pool:
        found = run_in(ledger, grid, pool, limits=Limits(**limits), interrupts=interrupts, on_event=events.append)
    return found, events


def test_any_worker_will_do(tmp_path: Path) -> None:
    pool = ToyPool()
    found, _ = sweep(pool, tmp_path / "run", workers=2, memory_mb=100)
    assert [(one.status, one.record, one.seconds, one.peak_mb, one.measured) for one in found.finished] == [
        (Status.OK, {"limit": 50}, 1.0, 2.0, {"x": 3.0})
    ] * 3
    assert (pool.started, pool.killed, pool.closed) == (2, 2, 1)
    assert pool.waits


def test_a_death_costs_one_attempt_of_one_cell(tmp_path: Path) -> None:
    found, events = sweep(ToyPool(die(hungry=False)), tmp_path / "run", memory_mb=100)
    assert [one.status for one in found.finished] == [Status.OK] * 3
    (retry,) = [event for event in events if event.kind is EventKind.RETRY]
    assert retry.detail == "worker lost its spring"
    starts = [event.key for event in events if event.kind is EventKind.START]
    assert starts[0] == starts[1], "tried again at once, as memory was not the reason"
    assert found.finished[0].record == {"limit": 100}


def test_the_second_death_is_the_fault_of_the_cell(tmp_path: Path) -> None:
    found, _ = sweep(ToyPool(die(hungry=False), die(hungry=False)), tmp_path / "run")
    assert [one.status for one in found.finished] == [Status.ERROR, Status.OK, Status.OK]
    assert found.finished[0].record == {"error": "WorkerDied", "message": "worker lost its spring, 2 times"}


def test_who_dies_of_hunger_is_tried_last_and_alone_with_all_there_is(tmp_path: Path) -> None:
    pool = ToyPool(die(hungry=True))
    found, events = sweep(pool, tmp_path / "run", workers=2, memory_mb=100)
    starts = [event.key for event in events if event.kind is EventKind.START]
    assert starts[0] == starts[-1]
    assert len(starts) == 4
    assert sorted(one.record["limit"] for one in found.finished) == [50, 50, 100]


def test_who_dies_of_hunger_alone_has_no_memory(tmp_path: Path) -> None:
    found, _ = sweep(ToyPool(die(hungry=True), die(hungry=True)), tmp_path / "run", cells=1)
    assert found.finished[0].status is Status.OOM


def test_a_worker_that_refuses_ends_the_sweep(tmp_path: Path) -> None:
    pool = ToyPool(hello=lambda: pack_message({"refused": "on node a: expected torch 2, got torch 1"}))
    with pytest.raises(UsageError, match="on node a: expected torch 2, got torch 1"):
        sweep(pool, tmp_path / "run", workers=2)
    assert (pool.started, pool.killed, pool.closed) == (2, 2, 1)


def test_workers_that_cannot_start_are_told_with_the_remedy_of_their_pool(tmp_path: Path) -> None:
    def fail() -> bytes:
        raise WorkerDied("no key")

    pool = ToyPool(hello=fail)
    with pytest.raises(UsageError, match=r"workers cannot start \(no key\)\. Wind them up"):
        sweep(pool, tmp_path / "run")
    assert (pool.started, pool.killed) == (2, 2)
