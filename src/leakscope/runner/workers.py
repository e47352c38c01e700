"""Handles on worker processes, as the sweep's own process sees them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

from leakscope.errors import UsageError
from leakscope.runner import worker as worker_side
from leakscope.runner.cells import Cell, Execute
from leakscope.runner.frames import Channel, pack_frame, split_frame
from leakscope.types import Status

_DEAD = (EOFError, OSError)
_BURIAL_SECONDS = 10.0


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
        self._channel = Channel(self._pipe.fileno())
        self._heard = (0, time.monotonic())
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
            self._channel.send(pack_frame(request))

    def poll(self) -> Answer | None:
        """The answer to the current cell, None while there is none.

        Raises:
            WorkerDied: the process has ended.
        """
        try:
            while (message := self._channel.receive()) is not None:
                header, data = split_frame(message)
                if "private_mb" in header:
                    self.private_mb = header["private_mb"]
                    continue
                numbers = (header["seconds"], header["peak_mb"], header["measured"])
                return Answer(Status(header["status"]), *numbers, data)
        except _DEAD:
            raise WorkerDied(self._describe_end()) from None
        # A child of the worker may hold the pipe open after the worker itself has died.
        if self._process.exitcode is not None and not self._pipe.poll():
            raise WorkerDied(self._describe_end())
        return None

    @property
    def stalled(self) -> float:
        """Seconds since the last byte of an answer that has begun; 0 where none has."""
        received, now = self._channel.received, time.monotonic()
        if not self._channel.in_message or received != self._heard[0]:
            self._heard = (received, now)
        return now - self._heard[1]

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
        self._process.join(timeout=_BURIAL_SECONDS)
        # What hangs in the kernel itself cannot be ended; the sweep does not hang with it.
        if self._process.exitcode is not None:
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
