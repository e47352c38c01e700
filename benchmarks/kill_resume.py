"""Kill a sweep, or one of its workers, with SIGKILL at random instants, resume it, and count losses and repetitions.

    python benchmarks/kill_resume.py --kills 50
    python benchmarks/kill_resume.py --kills 200 --of-workers 4 --workers 4
    python benchmarks/kill_resume.py --kills 25 --of-workers 4 --early 0 --on ray

With `--of-workers 4`, four of five kills hit a worker: the sweep goes on by itself and tries the cell once more. With
`--on ray` workers are actors of a cluster that the sweep starts, and 25 kills are 20 of workers and 5 of the sweep; the
reference runs on processes.

An uninterrupted run of the same cells is the reference: afterwards the set of cell files and
their SHA-256 must be equal, and no cell that the journal called finished may have run again.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from leakscope.runner import Cell, CellOutcome, run
from leakscope.runner.journal import scan
from leakscope.types import Status

SIDE = "LEAKSCOPE_KILL_RESUME_SIDE"
CELL_SECONDS = 0.1
# How long what a killed sweep had started may take to end: who is still importing notices only after that.
PATIENCE_SECONDS = 30.0
# Cells a kill lets through on average, with some to spare, so that every kill hits a live run.
CELLS_PER_KILL = 10


def execute(spec: Mapping[str, Any]) -> CellOutcome:
    """Note in the side file that this cell runs, take a while, return numbers drawn from its seed."""
    note = os.open(os.environ[SIDE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(note, f"{spec['seed']} {os.getpid()}\n".encode())
    os.close(note)
    time.sleep(CELL_SECONDS)
    rng = torch.Generator().manual_seed(spec["seed"])
    values = torch.randn(64, 64, generator=rng)
    product = values @ values.T
    return CellOutcome(Status.OK, {"trace": float(product.trace())}, {"product": product})


def grid(count: int) -> list[Cell]:
    """The cells of the benchmark."""
    return [Cell.of({"seed": seed}, code_version="kill-resume") for seed in range(count)]


class Victim:
    """One run directory, its side file and the process that works on it."""

    def __init__(self, folder: Path, *, cells: int, workers: int, on: str) -> None:
        """Use `folder`/run for the run and `folder`/side for the notes."""
        self.directory = folder / "run"
        self._side = folder / "side"
        folder.mkdir()
        self._side.touch()
        self._command = [sys.executable, __file__, "--drive", str(self.directory)]
        self._command += ["--cells", str(cells), "--workers", str(workers), "--on", on]

    def start(self) -> subprocess.Popen[bytes]:
        """Start, or resume, the run."""
        return subprocess.Popen(self._command, env={**os.environ, SIDE: str(self._side)})

    def notes(self) -> list[tuple[int, int]]:
        """Seed and process of every execution so far."""
        lines = self._side.read_text().splitlines()
        return [(int(seed), int(process)) for seed, process in (line.split() for line in lines)]

    def executions(self) -> Counter[int]:
        """How often each seed has run."""
        return Counter(seed for seed, _ in self.notes())

    def running(self) -> dict[int, int]:
        """The seed that each living worker began last, by process."""
        return {process: seed for seed, process in self.notes() if self._has(process)}

    def finished(self) -> set[str]:
        """Keys the journal calls finished, and well."""
        path = self.directory / "journal.jsonl"
        data = path.read_bytes() if path.exists() else b""
        records = [record for record in scan(data).records if record["kind"] == "finish"]
        return {record["key"] for record in records if record["status"] == "ok"}

    def hashes(self) -> dict[str, str]:
        """SHA-256 of every file below cells/."""
        return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (self.directory / "cells").iterdir()}

    def orphans(self) -> int:
        """Processes of a killed run, workers and Ray's own, that outlive it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (alive := sum(map(self._has, _processes()))) and time.monotonic() < deadline:
            time.sleep(0.1)
        return alive

    def _has(self, process: int) -> bool:
        # All of its processes, and nothing else, have inherited the name of the side file.
        try:
            found = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            return f"{SIDE}={self._side}".encode() in found
        except OSError:
            return False


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def kill_once(victim: Victim, rng: random.Random, *, early: bool) -> bool:
    """Start the run and kill it: while it starts, or among its cells. False if it ended before that."""
    before = len(victim.notes())
    process = victim.start()
    if early:
        time.sleep(rng.uniform(0, 4))
    else:
        while len(victim.notes()) == before and process.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 6 * CELL_SECONDS))
    return kill(process)


def kill(process: subprocess.Popen[bytes]) -> bool:
    """Kill the sweep. False if it ended before that."""
    ended = process.poll() is not None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return not ended


class WorkerKills:
    """Kills workers of a running sweep, none twice in the same cell: the second time would be the cell's own fault."""

    def __init__(self, victim: Victim, rng: random.Random) -> None:
        """Draw instants and workers from `rng`."""
        self.landed = 0
        self._victim, self._rng = victim, rng
        self._hit: set[int] = set()

    def strike(self, count: int) -> None:
        """Start the sweep and kill `count` of its workers, one at a time; the sweep itself is left to the caller."""
        self.process = self._victim.start()
        goal = self.landed + count
        while self.landed < goal and self.process.poll() is None:
            able = [one for one, seed in self._victim.running().items() if seed not in self._hit]
            if not able:
                time.sleep(0.02)
                continue
            time.sleep(self._rng.uniform(0, 2 * CELL_SECONDS))
            chosen = self._rng.choice(able)
            with contextlib.suppress(ProcessLookupError):
                os.kill(chosen, signal.SIGKILL)
                self.landed += 1
            # It may have begun another cell since it was looked at.
            self._hit.update([seed for seed, worker in self._victim.notes() if worker == chosen][-1:])


def measure(folder: Path, told: argparse.Namespace, *, cells: int) -> dict[str, Any]:
    """Run the reference, then the victim with so many kills, some of workers before each of it, and compare."""
    kills, of_workers = told.kills, told.of_workers
    reference = Victim(folder / "reference", cells=cells, workers=told.workers, on="processes")
    if reference.start().wait() != 0:
        raise SystemExit("the uninterrupted run failed")
    victim = Victim(folder / "killed", cells=cells, workers=told.workers, on=told.on)
    rng = random.Random(told.seed)
    seeds = {cell.key: seed for seed, cell in enumerate(grid(cells))}
    # For each finished cell, how often it had run when it was first seen finished.
    settled: dict[str, int] = {}
    landed = orphans = number = 0
    strikes = WorkerKills(victim, rng)
    while landed + strikes.landed < kills and number < kills:
        number += 1
        early = bool(told.early) and number % told.early == 0
        if of_workers and not early:
            strikes.strike(min(of_workers, kills - landed - strikes.landed - 1))
            landed += kill(strikes.process)
        else:
            landed += kill_once(victim, rng, early=early)
        orphans += victim.orphans()
        executions = victim.executions()
        for key in victim.finished():
            settled.setdefault(key, executions[seeds[key]])
        print(f"{landed} kills of the sweep, {strikes.landed} of workers, {len(settled)} cells", file=sys.stderr)
    settled_at_last_kill = len(settled)
    if victim.start().wait() != 0:
        raise SystemExit("the last resume failed")
    executions = victim.executions()
    return {
        "kills": landed + strikes.landed,
        "kills_of_workers": strikes.landed,
        "on": told.on,
        "cells": cells,
        "finished_when_last_killed": settled_at_last_kill,
        "finished": len(victim.finished()),
        "executions": sum(executions.values()),
        "finished_cells_run_again": sum(executions[seeds[key]] != count for key, count in settled.items()),
        "orphaned_workers": orphans,
        "files_equal": victim.hashes() == reference.hashes(),
    }


def main() -> int:
    """Parse the command line; 0 when nothing was lost or repeated."""
    parser = argparse.ArgumentParser(description="Kill a sweep at random instants, resume it, count losses.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--cells", type=int, default=None, help="default: enough that every kill hits a live run")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--of-workers", type=int, default=0, help="kills of workers before each kill of the sweep")
    parser.add_argument("--early", type=int, default=5, help="every so many kills hit a sweep that starts; 0 for none")
    parser.add_argument("--on", choices=("processes", "ray"), default="processes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drive", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cells = options.cells or CELLS_PER_KILL * options.kills + 4
    if options.drive:
        # By the name under which other processes find it.
        named = importlib.import_module("kill_resume").execute
        result = run(
            grid(cells), named, options.drive, workers=options.workers, retry_failed=True, on=options.on, timeout=60
        )
        return 0 if len(result.finished) == cells else 1
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options, cells=cells)
    print(json.dumps(found, indent=2))
    sound = found["files_equal"] and found["finished"] == cells
    return 0 if sound and not found["finished_cells_run_again"] and not found["orphaned_workers"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
