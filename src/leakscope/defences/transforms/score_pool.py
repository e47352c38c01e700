"""Worker processes of one thread each that score policies; with one worker the work is done in this process."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait as wait_for
from multiprocessing.process import parent_process
from typing import Any, Generic, TypeVar

import torch

from leakscope.counts import check_count
from leakscope.errors import LeakscopeError

Bench = TypeVar("Bench")
Task = TypeVar("Task")
Answer = TypeVar("Answer")

MOST_WORKERS = 1_000
# Tasks that wait for every worker: enough to keep it busy, few enough to forget when the search is stopped.
_AHEAD = 2

_BENCH: list[Any] = []


class WorkerEndedError(LeakscopeError):
    """A worker process ended: killed, or out of memory."""


class ScorePool(Generic[Bench]):
    """Runs `work(bench, task)` on processes that were given the bench once."""

    def __init__(self, bench: Bench, executor: ProcessPoolExecutor | None, workers: int) -> None:
        """Use `open_pool`."""
        self._bench, self._executor, self._workers = bench, executor, workers

    def run(
        self, work: Callable[[Bench, Task], Answer], tasks: Sequence[Task], *, done: Callable[[Task, Answer], None]
    ) -> None:
        """Run all tasks; `done` is called here, in this process, as soon as one has ended, in any order."""
        if self._executor is None:
            # As in a worker: sums in another order are other numbers.
            with fixed_threads(1):
                for task in tasks:
                    done(task, work(self._bench, task))
            return
        try:
            self._spread(self._executor, work, tasks, done=done)
        except BrokenProcessPool as error:
            raise WorkerEndedError(
                "a worker process ended, killed or out of memory; what was finished stays finished: run the same "
                "command again, with fewer --workers if memory is short"
            ) from error

    def _spread(
        self,
        executor: ProcessPoolExecutor,
        work: Callable[[Bench, Task], Answer],
        tasks: Sequence[Task],
        *,
        done: Callable[[Task, Answer], None],
    ) -> None:
        waiting, running = list(reversed(tasks)), dict[Future[Answer], Task]()
        while waiting or running:
            while waiting and len(running) < _AHEAD * self._workers:
                task = waiting.pop()
                running[executor.submit(_work, work, task)] = task
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                done(running.pop(future), future.result())


@contextmanager
def open_pool(bench: Bench, *, workers: int) -> Iterator[ScorePool[Bench]]:
    """Start `workers` processes that each hold `bench`, which must be picklable."""
    check_workers(workers)
    if workers == 1:
        yield ScorePool(bench, None, 1)
        return
    # Spawned, not forked: a forked torch inherits locked thread pools. Pickled here: torch's own way through
    # multiprocessing would share the memory of tensors.
    executor = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_start, initargs=(pickle.dumps(bench),)
    )
    try:
        yield ScorePool(bench, executor, workers)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def check_workers(workers: int) -> None:
    """Refuse what is no number of processes."""
    check_count(workers, "workers", most=MOST_WORKERS)


def _start(bench: bytes) -> None:
    # Ctrl-C reaches the whole terminal group; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    _BENCH[:] = [pickle.loads(bench)]


def _end_with_parent() -> None:
    # An executor's workers wait for ever for a parent that was killed.
    mother = parent_process()
    if mother is not None:
        wait_for([mother.sentinel])
        os._exit(1)


def _work(work: Callable[[Any, Any], Any], task: Any) -> Any:
    return work(_BENCH[0], task)


@contextmanager
def fixed_threads(count: int) -> Iterator[None]:
    """So many threads for the length of the block, on any machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
