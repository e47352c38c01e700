"""Runs that are kept: each is a small file, and a benchmark that was killed goes on where it stopped."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from picture_time.cases import Case, Victim
from picture_time.contestants import Contestant, Settings, fingerprint
from picture_time.curves import Run, read_run
from versus_breaching import run as run_worker

# A worker imports torch and reads its victim outside its clock.
_START_UP = 4.0


@dataclass(frozen=True)
class Job:
    """One run of one contestant on one victim; `expected` are processor seconds, for the time left."""

    case: Case
    contestant: Contestant
    settings: Settings = field(hash=False)
    victim: Victim
    length: int
    expected: float = 0.0

    def path(self, folder: Path) -> Path:
        """The file that keeps it: another setting, victim or length is another file."""
        tool = self.contestant.name.replace(", ", "-").replace(" ", "-")
        name = f"{self.victim.name}-{self.length}-{fingerprint(self.settings)}.json"
        return folder / self.case.file_name / tool / name

    def describe(self) -> str:
        """One phrase for progress lines."""
        return f"{self.case.name} victim {self.victim.name}, {self.contestant.name}, {self.length} evaluations"


def read_kept(job: Job, folder: Path) -> Run | None:
    """The run if it was made before."""
    path = job.path(folder)
    return read_run(json.loads(path.read_text(encoding="utf-8")), job.length) if path.exists() else None


def write_json(path: Path, value: Any) -> None:
    """Write at once or not at all, so that a killed benchmark leaves no half file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)


def run_job(job: Job, folder: Path, victim_file: Path) -> Run:
    """Run a worker and keep what it wrote."""
    path = job.path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    one, case = job.contestant, job.case
    options = (*one.command(job.settings, length=job.length), "--seed", job.victim.number, *case.local_options())
    run_worker(one.python, one.script, victim_file, part, *options)
    os.replace(part, path)
    kept = read_kept(job, folder)
    assert kept is not None
    return kept


@contextmanager
def _victim_file(case: Case, victim: Victim) -> Iterator[Path]:
    """The victim as a file, only while it is needed: weights are tens of megabytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "victim.npz"
        run_worker(sys.executable, "victim.py", path, *case.victim_options(victim))
        yield path


Work = Callable[[Job, Path, Path], Run]


def run_all(jobs: Sequence[Job], folder: Path, *, work: Work = run_job) -> list[Run]:
    """Every job's run, in order: kept ones are read, the others are made, victim by victim."""
    missing = [job for job in jobs if read_kept(job, folder) is None]
    progress = Progress(missing, kept=len(jobs) - len(missing))
    for victim, own in _by_victim(missing):
        with _victim_file(own[0].case, victim) as path:
            for job in own:
                progress.report(job, work(job, folder, path))
    found = [read_kept(job, folder) for job in jobs]
    return [run for run in found if run is not None]


def _by_victim(jobs: Iterable[Job]) -> Iterator[tuple[Victim, list[Job]]]:
    groups: dict[tuple[Case, Victim], list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.case, job.victim), []).append(job)
    for (_, victim), own in groups.items():
        yield victim, own


class Progress:
    """A line per run, with the time left: what was expected of the rest, at the speed seen so far."""

    def __init__(self, missing: Sequence[Job], *, kept: int) -> None:
        self._left = sum(job.expected + _START_UP for job in missing)
        self._done, self._spent, self._began = 0.0, 0, time.perf_counter()
        self._count = len(missing)
        if kept:
            print(f"{kept} of {kept + self._count} runs were kept from before", file=sys.stderr, flush=True)

    def report(self, job: Job, run: Run) -> None:
        """Say what came out."""
        self._done += job.expected + _START_UP
        self._spent += 1
        left = self.time_left(time.perf_counter() - self._began)
        said = f"{run.returned:.1f} dB in {run.seconds:.1f} s of processor time"
        print(
            f"[{self._spent}/{self._count}, {left / 60:.0f} min left] {job.describe()}: {said}",
            file=sys.stderr,
            flush=True,
        )

    def time_left(self, elapsed: float) -> float:
        """Seconds that the remaining jobs should take."""
        return (self._left - self._done) * elapsed / self._done
