"""Whatever a cell does, the sweep ends, every cell has a status, and nothing finished runs again."""

from __future__ import annotations

import math
import os
import shutil
import time
from pathlib import Path

import pytest
import sweep_workloads as workloads
import torch

from leakscope.errors import UsageError
from leakscope.runner import Cell, CellOutcome, Event, EventKind, read_cells, run
from leakscope.runner.journal import scan
from leakscope.runner.ledger import cell_path
from leakscope.runner.process_workers import ProcessPool
from leakscope.types import Status

ODD = {
    "nan": Status.NAN,
    "bad": Status.ERROR,
    "refuse": Status.REFUSED,
    "exit": Status.ERROR,
    "die": Status.ERROR,
    "die-once": Status.OK,
    "hang": Status.TIMEOUT,
}

SEEDED = [workloads.cell(seed=seed) for seed in range(6)]


def hashes(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (directory / "cells").iterdir()}


def gone(process: int) -> bool:
    """Whether a process has ended, within a few seconds."""
    for _ in range(100):
        try:
            if ") Z " in Path(f"/proc/{process}/stat").read_text():
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_every_ending_is_a_status_of_its_own_cell(tmp_path: Path, side_file: Path) -> None:
    directory = tmp_path / "run"
    cells = [*(workloads.cell(do) for do in ODD), *(workloads.cell(seed=seed) for seed in range(4))]
    events: list[Event] = []
    result = run(cells, workloads.execute, directory, workers=2, timeout=4, on_event=events.append)

    assert [outcome.status for outcome in result.finished] == [*ODD.values(), *[Status.OK] * 4]
    assert (result.executed, result.reused, result.interrupted) == (len(cells), 0, False)
    expected = {**dict.fromkeys(workloads.traces(), 1), "die": 2, "die-once": 2}
    assert workloads.executions() == expected
    _check_records(dict(zip(ODD, result.finished, strict=False)))
    _check_events(events, cells)
    assert gone(int(Path(f"{side_file}.child").read_text()))
    assert all(gone(process) for process in workloads.processes())

    _check_resume(directory, cells, result.outcomes)


def _check_records(found: dict[str, CellOutcome]) -> None:
    assert math.isnan(found["nan"].record["loss"])
    assert torch.isnan(found["nan"].tensors["x"]).all()
    assert found["bad"].record["error"] == "BadInputError"
    assert found["bad"].record["message"] == "expected a whole file, got half of one; send it again"
    assert found["bad"].record["where"].startswith("sweep_workloads:")
    assert found["refuse"].record["message"] == "needs the labels; use scenario B"
    assert found["exit"].record["error"] == "SystemExit"
    assert found["die"].record == {"error": "WorkerDied", "message": "worker killed by SIGKILL, 2 times"}
    assert found["hang"].record == {"error": "Timeout", "message": "no result within 4 s"}
    assert found["die-once"].seconds > 0
    assert found["die-once"].peak_mb > 50
    assert found["hang"].seconds >= 4


def _check_events(events: list[Event], cells: list[Cell]) -> None:
    finishes = [event for event in events if event.kind is EventKind.FINISH]
    assert [event.done for event in finishes] == list(range(1, len(cells) + 1))
    assert {event.key: event.status for event in finishes} == {
        cell.key: ODD.get(str(cell.spec["do"]), Status.OK) for cell in cells
    }
    assert sorted(event.name for event in events if event.kind is EventKind.RETRY) == ["die", "die-once"]
    assert finishes[-1].left == 0
    # What a cell raised may quote private values; it is in the cell's file only.
    assert not any("half of one" in str(event) for event in events)


def _check_resume(directory: Path, cells: list[Cell], outcomes: tuple[CellOutcome | None, ...]) -> None:
    before = workloads.executions()
    again = run(cells, workloads.execute, directory)
    assert (again.executed, again.reused) == (0, len(cells))
    assert [o.record for o in again.finished if o.status is Status.OK] == [
        o.record for o in outcomes if o is not None and o.status is Status.OK
    ]
    assert workloads.executions() == before
    # Only what a second try may change is tried again.
    subset = [cell for cell in cells if cell.spec["do"] in ("bad", "refuse", "nan", "work")]
    retried = run(subset, workloads.execute, directory, retry_failed=True)
    assert (retried.executed, retried.reused) == (1, len(subset) - 1)
    assert workloads.executions() - before == {"bad": 1}


@pytest.fixture(scope="module")
def one_worker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory that one worker filled; tests work on copies."""
    folder = tmp_path_factory.mktemp("one")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(workloads.SIDE, str(folder / "side"))
        result = run(SEEDED, workloads.execute, folder / "run")
    assert (result.executed, result.reused) == (len(SEEDED), 0)
    return folder / "run"


def test_files_do_not_depend_on_workers_or_order(tmp_path: Path, one_worker: Path) -> None:
    order = [3, 0, 5, 1, 4, 2, 0]
    two = run([SEEDED[place] for place in order], workloads.execute, tmp_path / "two", workers=2)

    assert hashes(tmp_path / "two") == hashes(one_worker)
    assert (two.executed, len(two.outcomes)) == (6, 7)
    one = {cell.key: outcome for cell, outcome in read_cells(one_worker)}
    for place, outcome in zip(order, two.finished, strict=True):
        assert torch.equal(outcome.tensors["product"], one[SEEDED[place].key].tensors["product"])
        assert outcome.record["threads"] == 1
    # Journals differ in order and timings, never in what they call finished.
    assert _finished_records(tmp_path / "two") == _finished_records(one_worker)


def _finished_records(directory: Path) -> set[tuple[str, str, str]]:
    records = scan((directory / "journal.jsonl").read_bytes()).records
    return {(r["key"], r["sha256"], r["status"]) for r in records if r["kind"] == "finish"}


def test_what_was_harmed_is_run_again_and_nothing_else(tmp_path: Path, one_worker: Path) -> None:
    directory = tmp_path / "run"
    shutil.copytree(one_worker, directory)
    cell_path(directory, SEEDED[1].key).write_bytes(b"rot")
    _spoil_finish_record(directory / "journal.jsonl", SEEDED[3].key)
    events: list[Event] = []
    result = run(SEEDED, workloads.execute, directory, on_event=events.append)

    assert (result.executed, result.reused) == (2, 4)
    assert workloads.executions() == {"work 1": 1, "work 3": 1}
    assert hashes(directory) == hashes(one_worker)
    assert [event.kind for event in events][:2] == [EventKind.RECOVER, EventKind.RERUN]
    assert "is damaged; its cell is run again" in events[0].detail


def _spoil_finish_record(path: Path, key: str) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    spoilt = next(n for n, line in enumerate(lines) if b"finish" in line and key.encode() in line)
    path.write_bytes(b"".join([*lines[:spoilt], b"rot\n", *lines[spoilt + 1 :]]))


def test_memory_limit_fails_one_cell_and_running_alone_gets_all(tmp_path: Path) -> None:
    cells = [
        workloads.cell("leak", megabytes=500),
        workloads.cell("leak", megabytes=20_000),
        workloads.cell(seconds=1),
    ]
    events: list[Event] = []
    # Torch with CUDA fills more than twice as much before the first cell as torch without. A share is 400 MB above
    # that, too little for the first cell; all of it is enough.
    memory = 2 * math.ceil(_measure_fresh_worker()) + 800
    result = run(cells, workloads.execute, tmp_path / "run", workers=2, memory_mb=memory, on_event=events.append)

    assert [outcome.status for outcome in result.finished] == [Status.OK, Status.OOM, Status.OK]
    assert workloads.executions() == {"leak": 4, "work": 1}
    assert result.finished[1].record == {"error": "MemoryError", "message": "memory ran out"}
    assert sorted(event.key for event in events if event.kind is EventKind.RETRY) == sorted(
        cell.key for cell in cells[:2]
    )
    _check_second_tries_are_alone(events)


def _measure_fresh_worker() -> float:
    """Megabytes of a worker process that has run nothing."""
    pool = ProcessPool(workloads.execute)
    worker = pool.start()
    try:
        while worker.private_mb is None:
            pool.wait([worker], seconds=0.1)
            worker.poll()
        return worker.private_mb
    finally:
        worker.kill()


def _check_second_tries_are_alone(events: list[Event]) -> None:
    running: set[str] = set()
    put_off: set[str] = set()
    for event in events:
        if event.kind is EventKind.START:
            assert event.key not in put_off or not running
            running.add(event.key)
        elif event.kind in (EventKind.FINISH, EventKind.RETRY):
            running.discard(event.key)
        if event.kind is EventKind.RETRY:
            put_off.add(event.key)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"workers": 0}, "workers must be ≥ 1"), ({"timeout": 0}, "timeout must be > 0"), ({"memory_mb": 0}, "memory_mb")],
)
def test_limits_that_cannot_work_are_refused(tmp_path: Path, options: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run([], workloads.execute, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_function_workers_cannot_import_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="top level of a module"):
        run([workloads.cell()], lambda spec: workloads.execute(spec), tmp_path / "run")


def test_no_cells_is_no_work(tmp_path: Path) -> None:
    result = run([], workloads.execute, tmp_path / "run")
    assert (len(result.outcomes), result.executed, result.reused) == (0, 0, 0)
    assert os.listdir(tmp_path / "run" / "cells") == []
