"""Cells on Ray: the same endings, the same bytes, and a cluster that nobody else reaches and that leaves nothing."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sweep_workloads as workloads
from ray_processes import listening, members

from leakscope.errors import UsageError
from leakscope.runner import Cell, Event, EventKind, Execute, NamedCall, SweepResult, run
from leakscope.runner.events import Interrupts
from leakscope.runner.ledger import open_ledger
from leakscope.runner.limits import Limits
from leakscope.runner.ray_cluster import LocalCluster, RayCluster
from leakscope.runner.ray_workers import RayPool
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


@pytest.mark.slow
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


def test_sockets_listen_on_this_machine_alone_and_files_are_the_owners(cluster: RayCluster, tmp_path: Path) -> None:
    seen: list[set[str]] = []
    found: list[Path] = []

    def look(event: Event) -> None:
        if event.kind is EventKind.START:
            found[:] = [one for one in Path("/tmp").glob("leakscope-ray-*") if _holder(one) == os.getpid()]
            seen.append(listening({os.getpid(), *members(found[0])}))

    with KeptPool(workloads.execute, cluster) as pool, open_ledger(tmp_path / "run") as ledger:
        run_in(ledger, WORK[:1], pool, limits=Limits(), interrupts=Interrupts(), on_event=look)
    assert seen == [{"127.0.0.1"}], "Ray does listen, and nowhere else"
    (folder,) = found
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
    assert "RAY_AUTH_MODE" not in os.environ, "the caller's environment is as it was"


@pytest.mark.slow
def test_nobody_comes_in_without_the_token(cluster: RayCluster) -> None:
    address = cluster.library.get_runtime_context().gcs_address
    # Also without the setting that would have Ray look for another address than the loopback one.
    settings = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    settings["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    settings["HOME"] = "/nonexistent"
    command = [sys.executable, "-c", STRANGER, address]
    found = subprocess.run(command, env=settings, capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode != 0
    assert "inside" not in found.stdout
    assert "uthentic" in found.stderr, found.stderr[-2000:]


STRANGER = """
import sys
import ray
ray.init(address=sys.argv[1], log_to_driver=False)
print("inside")
"""


def test_a_node_that_cannot_do_it_says_why(cluster: RayCluster, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"on node \S+: cannot import no_such_module:f"):
        sweep(cluster, WORK[:1], tmp_path / "run", execute=NamedCall("no_such_module:f"))
    assert workloads.traces() == []


def test_settings_reach_the_worker_as_they_are(cluster: RayCluster, tmp_path: Path) -> None:
    call = NamedCall.to(workloads.execute_with, settings={"place": "/a/b", "numbers": [1, 2.5, None]})
    result, _ = sweep(cluster, WORK[:1], tmp_path / "run", execute=call)
    assert result.finished[0].record == {"settings": {"place": "/a/b", "numbers": [1, 2.5, None]}}


@pytest.mark.slow
def test_bytes_are_those_of_processes_however_many_workers(cluster: RayCluster, tmp_path: Path) -> None:
    cells = [workloads.cell(seed=seed) for seed in range(6)]
    run(cells, workloads.execute, tmp_path / "process")
    run(cells, workloads.execute, tmp_path / "processes", workers=2)
    sweep(cluster, cells[::-1], tmp_path / "actor")
    sweep(cluster, cells, tmp_path / "actors", workers=2)
    kinds = [hashes(tmp_path / name) for name in ("process", "processes", "actor", "actors")]
    assert kinds[0]
    assert kinds[1:] == [kinds[0]] * 3
    # What one kind has finished, the other does not run again.
    again = run(cells, workloads.execute, tmp_path / "actors")
    assert (again.executed, again.reused) == (0, 6)


@pytest.mark.slow
def test_a_frozen_cell_costs_its_time_and_nothing_else(cluster: RayCluster, tmp_path: Path) -> None:
    cells = [workloads.cell("stop"), WORK[0]]
    result, _ = sweep(cluster, cells, tmp_path / "run", timeout=4)
    assert [outcome.status for outcome in result.finished] == [Status.TIMEOUT, Status.OK]
    assert all(gone(process) for process in workloads.processes())


@pytest.mark.slow
def test_memory_limit_fails_one_cell_and_running_alone_gets_all(cluster: RayCluster, tmp_path: Path) -> None:
    cells = [workloads.cell("leak", megabytes=700), workloads.cell("leak", megabytes=20_000), WORK[0]]
    # Above what an actor uses itself, a share has 500 MB: too little for the first cell, which has all of it alone.
    memory = 2 * (_measure_fresh_worker(cluster) + 500)
    result, events = sweep(cluster, cells, tmp_path / "run", workers=2, memory_mb=memory)
    assert [outcome.status for outcome in result.finished] == [Status.OK, Status.OOM, Status.OK]
    assert workloads.executions() == {"leak": 4, "work 0": 1}
    assert result.finished[1].record == {"error": "MemoryError", "message": "memory ran out"}
    retried = [event.key for event in events if event.kind is EventKind.RETRY]
    assert sorted(retried) == sorted(cell.key for cell in cells[:2])


def _measure_fresh_worker(cluster: RayCluster) -> int:
    pool = KeptPool(workloads.execute, cluster)
    worker = pool.start()
    try:
        while worker.private_mb is None:
            pool.wait([worker], seconds=0.1)
            worker.poll()
        return math.ceil(worker.private_mb)
    finally:
        worker.kill()


DRIVER = """
import sys
import sweep_workloads as workloads
from leakscope.runner import run
if __name__ == "__main__":
    cells = [workloads.cell(seed=0), workloads.cell(seed=1, seconds=300)]
    found = run(cells, workloads.execute, sys.argv[1], on="ray")
    print(found.interrupted, found.executed, found.signal)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_driver_that_is_stopped_leaves_nothing_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    until = time.monotonic() + 200
    while "work 1" not in workloads.traces() and time.monotonic() < until:
        time.sleep(0.1)
    (folder,) = [one for one in Path("/tmp").glob("leakscope-ray-*") if _holder(one) == driver.pid]
    before = members(folder)
    assert len(before) > 4
    # Ctrl-C reaches all of a terminal, and once lets the cell end that runs: pressed twice.
    for _ in range(2 if number is signal.SIGINT else 1):
        os.killpg(driver.pid, number) if number is signal.SIGINT else driver.send_signal(number)
        time.sleep(0.5)
    told = driver.communicate(timeout=60)[0]
    assert all(gone(process, seconds=30) for process in before)
    assert members(folder) == set()
    until = time.monotonic() + 30
    while folder.exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not folder.exists()
    if number is not signal.SIGKILL:
        assert told.split() == ["True", "1", str(int(number))]
    assert len(list((tmp_path / "run" / "cells").iterdir())) == 1


def _holder(folder: Path) -> int:
    return json.loads((folder / "lock").read_text() or "{}").get("pid", 0)
