"""Hands cells to workers and deals with what becomes of them.

A worker that dies costs its cell one attempt; a cell that runs out of memory is put at the end
of the queue and tried once more alone, in a fresh worker. Whatever happens, every cell ends in
a status, and only the cell concerned is affected.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from leakscope.errors import UsageError
from leakscope.runner import store
from leakscope.runner.cells import Cell, CellOutcome
from leakscope.runner.events import Event, EventKind, Interrupts, OnEvent
from leakscope.runner.ledger import FinishedCell, Ledger
from leakscope.runner.limits import Limits
from leakscope.runner.workers import Answer, Worker, WorkerDied, WorkerPool
from leakscope.types import Status

_ATTEMPTS = 2
_TICK = 0.1
_STARTUP_SECONDS = 300.0
# A worker that has begun to answer has nothing left to compute.
_STALLED_SECONDS = 60.0
# A grid is ordered, so the next cell resembles the last ones more than the first ones.
_NEWEST = 0.2


@dataclass
class Job:
    """A cell on its way: how often it was tried, and whether it must run alone."""

    cell: Cell
    attempts: int = 0
    alone: bool = False


class TimeLeft:
    """Time left, from the exponentially weighted mean of the seconds that cells took."""

    def __init__(self, workers: int) -> None:
        """Estimate for so many `workers`."""
        self._workers = workers
        self._mean: float | None = None

    def add(self, seconds: float) -> None:
        """Learn from a finished cell."""
        self._mean = seconds if self._mean is None else (1 - _NEWEST) * self._mean + _NEWEST * seconds

    def estimate(self, waiting: int, elapsed: Sequence[float]) -> float | None:
        """Seconds until the end, None before the first cell is done; `elapsed` are those of the running cells."""
        if self._mean is None:
            return None
        rest = [max(0.0, self._mean - seconds) for seconds in elapsed]
        # However many workers there are, the longest running cell must end.
        return max([(sum(rest) + self._mean * waiting) / self._workers, *rest])


class Dispatch:
    """One pass over the cells that are not finished yet."""

    def __init__(self, ledger: Ledger, pool: WorkerPool, *, limits: Limits, on_event: OnEvent) -> None:
        """Prepare; `drive` does the work with workers of `pool`, and leaves none behind."""
        self.executed = 0
        self.out_of_time = False
        # Keys of cells that began and have no result.
        self.unended: set[str] = set()
        self._ledger = ledger
        self._pool = pool
        self._limits = limits
        self._on_event = on_event
        self._waiting: deque[Job] = deque()
        self._running: dict[Worker, Job] = {}
        self._workers: list[Worker] = []
        # How many of those that wait must run alone: counting them each time would take as long as there are cells.
        self._alone = 0
        self._failed_starts = 0
        self._done = self._total = 0
        self._time_left = TimeLeft(limits.workers)

    def drive(self, todo: Sequence[Cell], *, done: Sequence[Cell], interrupts: Interrupts) -> None:
        """Run `todo` to the end, or until time is over or interrupted: once lets running cells end, twice does not."""
        ends = time.monotonic() + (self._limits.seconds or float("inf"))
        self._waiting.extend(Job(cell) for cell in todo)
        self._done, self._total = len(done), len(todo) + len(done)
        for cell in done:
            self._time_left.add(self._ledger.entries[cell.key].seconds)
            self._tell(EventKind.REUSE, cell, status=self._ledger.entries[cell.key].status)
        stopping = False
        try:
            while self._running or (self._waiting and not stopping):
                if interrupts.count > 1:
                    break
                if interrupts.count and not stopping:
                    stopping = True
                    self._tell(EventKind.STOP, detail="finishing the running cells; once more stops at once")
                # Not before a first cell has begun: a run that is continued again and again must get on.
                begun = self.executed or self._running
                if self._waiting and begun and not stopping and time.monotonic() > ends:
                    stopping = self.out_of_time = True
                    self._tell(EventKind.STOP, detail="the time is over; finishing the running cells")
                if not stopping:
                    self._fill()
                self._pool.wait(self._workers, seconds=_TICK)
                for worker in list(self._workers):
                    self._attend(worker)
        finally:
            for worker in list(self._workers):
                self._dismiss(worker)

    def _fill(self) -> None:
        alone = bool(self._waiting) and self._waiting[0].alone
        if alone:
            if self._running:
                return
            self._keep_one_fresh()
        together = len(self._waiting) - self._alone + len(self._running)
        wanted = 1 if alone else min(self._limits.workers, together)
        while len(self._workers) < wanted:
            self._workers.append(self._pool.start())
        for worker in self._workers:
            idle = worker.private_mb is not None and worker not in self._running
            if idle and self._waiting and self._waiting[0].alone == alone:
                job = self._waiting.popleft()
                self._alone -= job.alone
                self._start(worker, job)

    def _keep_one_fresh(self) -> None:
        # Alone means alone: idle workers hold memory too, and a used one holds what it kept.
        keep = next((worker for worker in self._workers if worker.fresh), None)
        for worker in [worker for worker in self._workers if worker is not keep]:
            self._dismiss(worker)

    def _start(self, worker: Worker, job: Job) -> None:
        job.attempts += 1
        self._ledger.begin(job.cell, attempt=job.attempts)
        self.unended.add(job.cell.key)
        self._running[worker] = job
        worker.assign(job.cell, limit_mb=self._limits.share_mb(alone=job.alone))
        self._tell(EventKind.START, job.cell)

    def _attend(self, worker: Worker) -> None:
        if worker not in self._workers:
            return
        job = self._running.get(worker)
        starting = worker.private_mb is None
        try:
            answer = worker.poll()
        except WorkerDied as death:
            self._bury(worker, job, starting=starting, death=death)
            return
        if starting and worker.private_mb is not None:
            self._failed_starts = 0
            self._limits.check_share(worker.private_mb)
        if job is not None and answer is not None:
            self._take(worker, job, answer)
        elif job is not None and (message := self._overdue(worker)):
            seconds = worker.elapsed
            self._dismiss(worker)
            self._fail(job, Status.TIMEOUT, error="Timeout", message=message, seconds=seconds)
        elif worker.private_mb is None and worker.elapsed > _STARTUP_SECONDS:
            late = WorkerDied(f"not ready after {_STARTUP_SECONDS:g} s")
            self._bury(worker, job, starting=True, death=late)

    def _overdue(self, worker: Worker) -> str:
        """Why a worker is not waited for any longer; nothing while it is."""
        if self._limits.timeout and worker.elapsed > self._limits.timeout:
            return f"no result within {self._limits.timeout:g} s"
        if worker.stalled > _STALLED_SECONDS:
            return f"its answer stopped for {_STALLED_SECONDS:g} s"
        return ""

    def _take(self, worker: Worker, job: Job, answer: Answer) -> None:
        elapsed = worker.elapsed
        del self._running[worker]
        if answer.status is Status.OOM:
            # What it holds, and what it may have left half done, is not for the next cell.
            self._dismiss(worker)
            if job.attempts < _ATTEMPTS:
                self._retry(job, alone=True, detail="memory ran out")
                return
        self._time_left.add(elapsed)
        entry = FinishedCell(store.digest(answer.data), answer.status, answer.seconds, answer.peak_mb, answer.measured)
        self._finish(job, answer.data, entry)

    def _bury(self, worker: Worker, job: Job | None, *, starting: bool, death: WorkerDied) -> None:
        self._dismiss(worker)
        if starting:
            self._failed_starts += 1
        if self._failed_starts >= _ATTEMPTS:
            raise UsageError(f"workers cannot start ({death}). {self._pool.remedy}")
        if job is None:
            return
        if job.attempts < _ATTEMPTS:
            self._retry(job, alone=job.alone or death.hungry, detail=f"worker {death}")
        elif death.hungry:
            self._fail(job, Status.OOM, error="MemoryError", message="memory ran out")
        else:
            self._fail(job, Status.ERROR, error="WorkerDied", message=f"worker {death}, {_ATTEMPTS} times")

    def _retry(self, job: Job, *, alone: bool, detail: str) -> None:
        job.alone = alone
        self._alone += alone
        # Alone comes last: the others need not stand still for it.
        self._waiting.append(job) if alone else self._waiting.appendleft(job)
        self._tell(EventKind.RETRY, job.cell, detail=detail)

    def _fail(self, job: Job, status: Status, *, error: str, message: str, seconds: float = 0.0) -> None:
        data = store.pack(job.cell, CellOutcome(status, {"error": error, "message": message}))
        self._finish(job, data, FinishedCell(store.digest(data), status, seconds, 0.0))

    def _finish(self, job: Job, data: bytes, entry: FinishedCell) -> None:
        self._ledger.commit(job.cell, data, entry)
        self.unended.discard(job.cell.key)
        self.executed += 1
        self._done += 1
        self._tell(EventKind.FINISH, job.cell, status=entry.status, seconds=entry.seconds)

    def _dismiss(self, worker: Worker) -> None:
        self._workers.remove(worker)
        self._running.pop(worker, None)
        worker.kill()

    def _tell(
        self,
        kind: EventKind,
        cell: Cell | None = None,
        *,
        status: Status | None = None,
        seconds: float = 0.0,
        detail: str = "",
    ) -> None:
        left = self._time_left.estimate(len(self._waiting), [worker.elapsed for worker in self._running])
        key, name = (cell.key, cell.name) if cell else ("", "")
        self._on_event(Event(kind, self._done, self._total, key, name, status, seconds, left, detail))
