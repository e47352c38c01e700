"""Handles on worker processes, as the sweep's own process sees them."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from leakscope.errors import UsageError
from leakscope.runner import worker as worker_side
from leakscope.runner.cells import Cell, Execute
from leakscope.types import Status

_DEAD = (EOFError, OSError)


@dataclass(frozen=True)
class Answer:
    """What a worker sent back for a cell."""

    status: Status
    seconds: float
    peak_mb: float
    measured: dict[str, float]
    data: bytes


class Worker:
    """One spawned process and the pipe to it.

    `private_mb` is None until the process has started and said what it uses itself; `fresh`
    until it gets its first cell.
    """

    def __init__(self, execute: Execute) -> None:
        """Start the process; `poll` tells when it is ready."""
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
        self.private_mb: float | None = None
        self.fresh = True
        self.since = time.monotonic()

    @property
    def pipe(self) -> Connection:
        """What to wait on."""
        return self._pipe

    @property
    def elapsed(self) -> float:
        """Seconds since the current cell, or the process, started."""
        return time.monotonic() - self.since

    def assign(self, cell: Cell, *, limit_mb: int | None) -> None:
        """Send a cell. A worker that has died in the meantime shows at the next `poll`."""
        self.fresh, self.since = False, time.monotonic()
        request = {"key": cell.key, "spec": cell.spec, "limit_mb": limit_mb}
        with contextlib.suppress(*_DEAD):
            self._pipe.send_bytes(json.dumps(request).encode())

    def poll(self) -> Answer | None:
        """The answer to the current cell, None while there is none.

        Raises:
            WorkerDied: the process has ended.
        """
        try:
            while self._pipe.poll():
                message = json.loads(self._pipe.recv_bytes())
                if "private_mb" in message:
                    self.private_mb = message["private_mb"]
                    continue
                return self._receive(message)
        except _DEAD:
            raise WorkerDied(self._describe_end()) from None
        # A child of the worker may hold the pipe open after the worker itself has died.
        if self._process.exitcode is not None and not self._pipe.poll():
            raise WorkerDied(self._describe_end())
        return None

    def _receive(self, message: dict[str, Any]) -> Answer:
        numbers = (message["seconds"], message["peak_mb"], message["measured"])
        return Answer(Status(message["status"]), *numbers, self._pipe.recv_bytes())

    def _describe_end(self) -> str:
        # A closed pipe is seen a moment before the process itself is gone.
        self._process.join(timeout=5)
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
        self._process.join()
        self._process.close()
        self._pipe.close()


class WorkerDied(Exception):
    """A worker process ended; the argument says how."""


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


def wait_for(workers: list[Worker], *, seconds: float) -> None:
    """Sleep until a worker has something to say, at most `seconds`."""
    wait([worker.pipe for worker in workers], timeout=seconds)
