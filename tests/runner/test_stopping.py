"""Stops of every kind lose nothing that was finished: Ctrl-C, kill -9, a full disk, a rival."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sweep_workloads as workloads

from leakscope.errors import StorageError, UsageError
from leakscope.runner import Event, EventKind, read_cells, run

ROOT = Path(__file__).parents[2]

RIVAL = """
import sys
from pathlib import Path
import sweep_workloads as workloads
from leakscope.errors import UsageError
from leakscope.runner import run
if __name__ == "__main__":
    try:
        run([workloads.cell(seed=seed) for seed in range(2)], workloads.execute, Path(sys.argv[1]))
    except UsageError as error:
        print(error)
        sys.exit(error.exit_code)
"""


def kill_resume(kills: int, *, workers: int) -> dict[str, Any]:
    """Run the benchmark program; its own exit code says whether anything was lost."""
    command = [sys.executable, str(ROOT / "benchmarks" / "kill_resume.py")]
    command += ["--kills", str(kills), "--workers", str(workers)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def check_kills(found: dict[str, Any], kills: int) -> None:
    assert found["kills"] == kills
    assert found["finished"] == found["cells"]
    assert 0 < found["finished_when_last_killed"] < found["cells"]
    assert found["finished_cells_run_again"] == 0
    assert found["orphaned_workers"] == 0
    assert found["files_equal"] is True
    # A kill costs at most the cells that were running.
    assert found["cells"] < found["executions"] <= found["cells"] + 2 * kills


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs started from here find leakscope and the workloads."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(Path(__file__).parent)]))


@pytest.mark.usefixtures("importable")
def test_two_kills() -> None:
    # One worker: half the processes to start, and the rest is the same.
    check_kills(kill_resume(2, workers=1), 2)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("importable")
def test_fifty_kills() -> None:
    check_kills(kill_resume(50, workers=2), 50)


@pytest.mark.usefixtures("importable")
def test_a_rival_process_is_turned_away_and_no_cell_runs_twice(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    rivals: list[subprocess.CompletedProcess[str]] = []

    def send_rival(event: Event) -> None:
        if event.kind is EventKind.START and not rivals:
            command = [sys.executable, "-c", RIVAL, str(directory)]
            rivals.append(subprocess.run(command, capture_output=True, text=True, check=False))

    result = run([workloads.cell(seed=seed) for seed in range(2)], workloads.execute, directory, on_event=send_rival)
    assert rivals[0].returncode == UsageError.exit_code
    assert f"is being run by process {os.getpid()}" in rivals[0].stdout
    assert result.executed == 2
    assert set(workloads.executions().values()) == {1}


def test_ctrl_c_once_finishes_running_cells_and_twice_does_not(tmp_path: Path) -> None:
    cells = [workloads.cell(seed=seed, seconds=0.3) for seed in range(4)]
    directory = tmp_path / "run"
    handler = signal.getsignal(signal.SIGINT)

    def press(times: int, at: int) -> Any:
        def listener(event: Event) -> None:
            if event.kind is EventKind.START and event.done == at:
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)

        return listener

    once = run(cells, workloads.execute, directory, on_event=press(1, at=1))
    assert (once.interrupted, once.executed) == (True, 2)
    assert [outcome is None for outcome in once.outcomes] == [False, False, True, True]

    twice = run(cells, workloads.execute, directory, on_event=press(2, at=2))
    assert (twice.interrupted, twice.executed, twice.reused) == (True, 0, 2)
    assert signal.getsignal(signal.SIGINT) is handler

    assert {cell.key for cell, _ in read_cells(directory)} == {cell.key for cell in cells[:2]}
    assert workloads.executions()["work 0"] == workloads.executions()["work 1"] == 1


def test_full_disk_ends_the_sweep_and_it_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [workloads.cell(seed=seed) for seed in range(3)]
    directory = tmp_path / "run"

    def fill_disk(event: Event) -> None:
        if event.kind is EventKind.FINISH and event.done == 2:
            monkeypatch.setattr(os, "write", full)

    def full(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match=r"\d+ bytes needed, \d+ free .*The 2 cells finished before"):
        run(cells, workloads.execute, directory, on_event=fill_disk)
    monkeypatch.undo()
    os.environ["LEAKSCOPE_TEST_SIDE"] = str(tmp_path / "side")
    assert len(read_cells(directory)) == 2
    result = run(cells, workloads.execute, directory)
    assert (result.executed, result.reused) == (1, 2)
    assert workloads.executions()["work 0"] == workloads.executions()["work 1"] == 1


class Poison:
    """Pickles, and fails when a worker unpickles it."""

    def __call__(self, spec: Any) -> Any:
        return workloads.execute(spec)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_fail_to_load, ())


def _fail_to_load() -> None:
    raise ImportError("cannot be imported here")


def test_workers_that_cannot_start_end_the_sweep(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=r"cannot start \(exit code 1\)"):
        run([workloads.cell()], Poison(), tmp_path / "run")
    assert workloads.traces() == []
