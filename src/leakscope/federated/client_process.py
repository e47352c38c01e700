"""A process that runs one client's part at a time, and that is ended when the part takes too long.

It lives from part to part, since starting it takes seconds; one that was ended is replaced for the next. What goes to
and fro is pickled: both ends are this program, and the client's code would run in it anyway.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from leakscope.errors import UsageError
from leakscope.federated.faults import Failure
from leakscope.federated.parts import ClientPart, Runner

_DEAD = (EOFError, OSError)
# To import torch on a busy machine; not a client's time.
_START_SECONDS = 300.0
_BURIAL_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1
_REMEDY = (
    "with a time limit clients run in a process of their own, which imports this program: put the call under "
    "`if __name__ == '__main__':`, define networks, losses and clients at the top level of a module, or give no limit"
)


@dataclass(frozen=True)
class _Settings:
    """What of torch decides the bits of a result besides its arguments."""

    threads: int
    dtype: torch.dtype
    is_deterministic: bool
    precision: str

    @classmethod
    def current(cls) -> _Settings:
        return cls(
            torch.get_num_threads(),
            torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
        )

    def apply(self) -> None:
        torch.set_num_threads(self.threads)
        torch.set_default_dtype(self.dtype)
        torch.use_deterministic_algorithms(self.is_deterministic)
        torch.set_float32_matmul_precision(self.precision)


@dataclass(frozen=True)
class _Answer:
    """How a part ended: its result with what the client now keeps, why it failed, or why it could not be read."""

    result: Any = None
    memory: dict[str, Tensor] | None = None
    failure: Failure | None = None
    unreadable: str = ""


class ClientProcess(Runner):
    """The server's end: hands a part over, and waits for it so long and no longer."""

    def __init__(self, seconds: float) -> None:
        """Nothing is started yet."""
        self._seconds = seconds
        self._process: Any = None
        self._pipe: Connection | None = None

    def __enter__(self) -> ClientProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self, part: ClientPart) -> Any:
        """What the part comes to, or the client's `Failure`: late, dead, or with an error of its own.

        The limit counts from when the part is handed over; starting the process is not the client's time.
        """
        number, request = part.client.number, _pack(part)
        pipe = self._start()
        exchange = _Exchange(pipe, request)
        exchange.start()
        exchange.join(self._seconds)
        if exchange.is_alive():
            self._end(exchange)
            return Failure(number, f"TimeoutError: no reply within {self._seconds:g} s; its process was ended")
        if exchange.answer is None:
            return Failure(number, f"its process died ({self._describe_end()}) before it replied")
        if exchange.answer.unreadable:
            raise UsageError(f"a client's part cannot be handed over: {exchange.answer.unreadable}; {_REMEDY}")
        if exchange.answer.failure is not None:
            return exchange.answer.failure
        part.client.memory.restore(exchange.answer.memory or {})
        return exchange.answer.result

    def _start(self) -> Connection:
        if self._pipe is not None:
            return self._pipe
        # Spawned, not forked: a forked torch inherits locked thread pools.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=serve, args=(theirs, _Settings.current(), os.getpid()), name="leakscope-client"
        )
        self._process.start()
        # Ours must close, or the end of the process would not be the end of the pipe.
        theirs.close()
        try:
            if self._pipe.poll(_START_SECONDS):
                self._pipe.recv_bytes()
                return self._pipe
        except _DEAD:
            pass
        raise UsageError(f"the process for clients did not start ({self._describe_end()}); {_REMEDY}")

    def _describe_end(self) -> str:
        """How the process ended; it is gone afterwards."""
        # A closed pipe is seen a moment before the process itself is gone.
        self._process.join(timeout=5)
        code = self._process.exitcode
        self._end()
        if code is None:
            return "it closed its pipe"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def _end(self, exchange: _Exchange | None = None) -> None:
        """End the process and all that it has started; what is still being said to it ends with it."""
        if self._pipe is None:
            return
        # Once the exit code has been read, the number may belong to a stranger.
        if self._process.exitcode is None and self._process.pid:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                # Not yet the leader of its own group.
                self._process.kill()
        self._process.join(timeout=_BURIAL_SECONDS)
        if exchange is not None:
            exchange.join(timeout=_BURIAL_SECONDS)
        # Closed under a thread that still writes to it, a pipe raises there; it waits only where a stranger holds on.
        if exchange is None or not exchange.is_alive():
            self._pipe.close()
        self._process = self._pipe = None


class _Exchange(threading.Thread):
    """Sends a request and waits for its answer: a thread, since either blocks where the other end has stopped."""

    def __init__(self, pipe: Connection, request: bytes) -> None:
        super().__init__(daemon=True, name="leakscope-client-exchange")
        self._pipe, self._request = pipe, request
        self.answer: _Answer | None = None

    def run(self) -> None:
        with contextlib.suppress(*_DEAD):
            self._pipe.send_bytes(self._request)
            self.answer = pickle.loads(self._pipe.recv_bytes())


def _pack(part: ClientPart) -> bytes:
    try:
        return pickle.dumps(part)
    # Objects of the user's own may raise anything on the way.
    except Exception as error:
        raise UsageError(f"a client's part cannot be handed over: {error}; {_REMEDY}") from error


def serve(pipe: Connection, settings: _Settings, parent: int) -> None:
    """Run parts from `pipe` until it closes. Entry point of the process."""
    if sys.platform == "linux":
        # Also where a client hangs with the interpreter's lock: nobody else would ever end it.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    # Ctrl-C reaches the whole terminal group; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A group of its own: ending it then also ends what the client has started.
    os.setpgid(0, 0)
    settings.apply()
    with contextlib.suppress(*_DEAD):
        pipe.send_bytes(b"ready")
        while True:
            pipe.send_bytes(_answer(pipe.recv_bytes()))


def _answer(request: bytes) -> bytes:
    try:
        part = pickle.loads(request)
    except Exception as error:
        return pickle.dumps(_Answer(unreadable=f"{type(error).__name__}: {error}"))
    number = part.client.number
    try:
        result = part.run()
        return pickle.dumps(_Answer(result, memory=part.client.memory.state()))
    except Exception as error:
        return pickle.dumps(_Answer(failure=Failure.of(number, error)))
