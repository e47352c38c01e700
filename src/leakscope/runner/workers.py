"""Workers as the sweep's own process sees them, wherever they run: the base classes, and what goes to and fro."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from leakscope.errors import UsageError
from leakscope.runner.cells import Cell
from leakscope.runner.frames import split_frame
from leakscope.types import Status


@dataclass(frozen=True)
class Answer:
    """What a worker sent back for a cell."""

    status: Status
    seconds: float
    peak_mb: float
    measured: dict[str, float]
    data: bytes


class WorkerDied(Exception):
    """A worker ended; the argument says how, and `hungry` whether for want of memory."""

    def __init__(self, how: str, *, hungry: bool = False) -> None:
        super().__init__(how)
        self.hungry = hungry


class Worker(ABC):
    """One worker, which runs one cell at a time.

    `private_mb` is None until the worker has started and said what it uses itself; `fresh`
    until it gets its first cell. A subclass moves messages and can end the worker.
    """

    def __init__(self) -> None:
        self.private_mb: float | None = None
        self.fresh = True
        self._since = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the current cell, or the worker, started."""
        return time.monotonic() - self._since

    @property
    def stalled(self) -> float:
        """Seconds since the last byte of an answer that has begun; 0 where none has, or where it arrives whole."""
        return 0.0

    @property
    @abstractmethod
    def awaited(self) -> Any:
        """What its pool waits on; None where nothing can come."""

    @final
    def assign(self, cell: Cell, *, limit_mb: int | None) -> None:
        """Send a cell. A worker that has died in the meantime shows at the next `poll`."""
        self.fresh, self._since = False, time.monotonic()
        self._send({"key": cell.key, "spec": cell.spec, "limit_mb": limit_mb})

    @final
    def poll(self) -> Answer | None:
        """The answer to the current cell, None while there is none.

        Raises:
            WorkerDied: the worker has ended.
            UsageError: it cannot do what it is there for, and none like it could.
        """
        while (message := self._receive()) is not None:
            header, data = split_frame(message)
            if "refused" in header:
                raise UsageError(header["refused"])
            if "private_mb" in header:
                self.private_mb = header["private_mb"]
                continue
            numbers = (header["seconds"], header["peak_mb"], header["measured"])
            return Answer(Status(header["status"]), *numbers, data)
        return None

    @abstractmethod
    def kill(self) -> None:
        """End the worker and all it started, now."""

    @abstractmethod
    def _send(self, request: Mapping[str, Any]) -> None:
        """Send the request for a cell, without waiting until it is received."""

    @abstractmethod
    def _receive(self) -> bytes | None:
        """The next whole message without its length, None while there is none; `WorkerDied` where none can come."""


class WorkerPool(ABC):
    """Where workers come from.

    `remedy` tells the user what may be wrong where they cannot start.
    """

    remedy: str

    @abstractmethod
    def start(self) -> Worker:
        """Start a worker; its `poll` tells when it is ready."""

    @abstractmethod
    def wait(self, workers: Sequence[Worker], *, seconds: float) -> None:
        """Sleep until one of its workers has something to say, at most `seconds`."""

    @abstractmethod
    def close(self) -> None:
        """Give back what the pool itself holds; its workers have been killed before."""

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
