"""Workers that are processes of this machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from leakscope.errors import UsageError
from leakscope.runner import worker as worker_side
from leakscope.runner.cells import Execute
from leakscope.runner.frames import Channel, pack_frame
from leakscope.runner.limits import kernel_kills
from leakscope.runner.workers import Worker, WorkerDied, WorkerPool

_DEAD = (EOFError, OSError)
_BURIAL_SECONDS = 10.0


class ProcessWorker(Worker):
    """One spawned process and the pipe to it."""

    def __init__(self, execute: Execute) -> None:
        """Start the process; `poll` tells when it is ready."""
        super().__init__()
        # Spawned, not forked: a forked torch inherits locked thread pools.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=worker_side.serve, args=(theirs, execute, os.getpid()), name="leakscope-worker"
        )
        with _start_errors():
            self._process.start()
        # Ours must close, or the end of the process would not be the end of the pipe.
        theirs.close()
        self._channel = Channel(self._pipe.fileno())
        self._heard = (0, time.monotonic())
        self._kills_before = kernel_kills()

    @property
    def awaited(self) -> Connection:
        """The pipe."""
        return self._pipe

    def _send(self, request: Mapping[str, Any]) -> None:
        self._kills_before = kernel_kills()
        with contextlib.suppress(*_DEAD):
            self._channel.send(pack_frame(request))

    def _receive(self) -> bytes | None:
        try:
            message = self._channel.receive()
        except _DEAD:
            raise self._death() from None
        # A child of the worker may hold the pipe open after the worker itself has died.
        if message is None and self._process.exitcode is not None and not self._pipe.poll():
            raise self._death()
        return message

    @property
    def stalled(self) -> float:
        """Seconds since the last byte of an answer that has begun; 0 where none has."""
        received, now = self._channel.received, time.monotonic()
        if not self._channel.in_message or received != self._heard[0]:
            self._heard = (received, now)
        return now - self._heard[1]

    def _death(self) -> WorkerDied:
        # A closed pipe is seen a moment before the process itself is gone.
        self._process.join(timeout=5)
        return WorkerDied(self._describe_end(), hungry=kernel_kills() > self._kills_before)

    def _describe_end(self) -> str:
        code = self._process.exitcode
        if code is None:
            return "closed its pipe"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        """End the process and all it started, now."""
        # Once the exit code has been read, the number may belong to a stranger.
        if self._process.exitcode is None and self._process.pid:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                # Not yet the leader of its own group.
                self._process.kill()
        self._process.join(timeout=_BURIAL_SECONDS)
        # What hangs in the kernel itself cannot be ended; the sweep does not hang with it.
        if self._process.exitcode is not None:
            self._process.close()
        self._pipe.close()


class ProcessPool(WorkerPool):
    """Starts processes that run `execute`."""

    remedy = (
        "Workers import the program that calls run: put the call under `if __name__ == '__main__':`, and execute at "
        "the top level of an importable module"
    )

    def __init__(self, execute: Execute) -> None:
        self._execute = execute

    def start(self) -> Worker:
        """Start a process."""
        return ProcessWorker(self._execute)

    def wait(self, workers: Sequence[Worker], *, seconds: float) -> None:
        """Sleep until a pipe has something to say."""
        wait([worker.awaited for worker in workers], timeout=seconds)

    def close(self) -> None:
        """Nothing is left: a process ends with its worker."""


@contextlib.contextmanager
def _start_errors() -> Iterator[None]:
    try:
        yield
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            f"execute must be a function at the top level of a module, so that workers can import it ({error})"
        ) from error
    except OSError as error:
        raise UsageError(f"cannot start a worker process ({error.strerror}); use fewer workers") from error
