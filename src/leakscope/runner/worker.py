"""Inside a worker process: take a cell, run it, send back its bytes.

Both directions of the pipe carry JSON and safetensors bytes; nothing is unpickled after the
process has started. The worker writes no file.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import parent_process
from typing import Any

import torch

from leakscope.errors import KnowledgeError, LeakscopeError, UnsuitableError
from leakscope.runner import frames, limits, store
from leakscope.runner.cells import Cell, CellOutcome, Execute
from leakscope.types import Status

_PR_SET_PDEATHSIG = 1


def serve(pipe: Connection, execute: Execute, parent: int) -> None:
    """Run cells from `pipe` until it closes. Entry point of the process."""
    _die_with(parent)
    # Ctrl-C reaches the whole terminal group; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A group of its own: killing a worker then also kills what its cell has started.
    os.setpgid(0, 0)
    # One thread always, also with a single worker: sums in another order are other bytes.
    torch.set_num_threads(1)
    descriptor = pipe.fileno()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        frames.write_frame(descriptor, frames.pack_frame({"private_mb": limits.private_mb()}))
        while True:
            request, _ = frames.split_frame(frames.read_frame(descriptor))
            header, data = answer(request, execute)
            frames.write_frame(descriptor, frames.pack_frame(header, data))


def _die_with(parent: int) -> None:
    """Make sure this process ends when the sweep's process does, even in the middle of a cell."""
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    threading.Thread(target=_watch_parent, daemon=True).start()


def die_with_parent() -> None:
    """Ask the kernel, where it offers that, to kill this process when the one that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _watch_parent() -> None:
    # Where the kernel offers no death signal, and in addition where it does.
    mother = parent_process()
    if mother is not None:
        wait([mother.sentinel])
        os._exit(1)


def answer(request: Mapping[str, Any], execute: Execute) -> tuple[dict[str, Any], bytes]:
    """Run the cell of `request` under its limit: how it ended, and the bytes of its file."""
    cell = Cell(request["spec"], request["key"])
    # A cell that forgets to seed itself must still not depend on which cell ran before it.
    torch.manual_seed(int(cell.key[:15], 16))
    random.seed(cell.key)
    limits.reset_peak()
    limits.cap_memory(request["limit_mb"])
    began = time.perf_counter()
    outcome, data = _attempt(cell, execute)
    outcome = replace(
        outcome,
        seconds=outcome.seconds or time.perf_counter() - began,
        peak_mb=outcome.peak_mb or limits.peak_mb(),
    )
    return {
        "status": outcome.status.value,
        "seconds": outcome.seconds,
        "peak_mb": outcome.peak_mb,
        "measured": outcome.measured,
    }, data


def _attempt(cell: Cell, execute: Execute) -> tuple[CellOutcome, bytes]:
    try:
        outcome = _check_outcome(execute(cell.spec))
        return outcome, store.pack(cell, outcome)
    # Also SystemExit: whatever a cell does, it ends that cell and not the worker.
    except BaseException as error:
        # Room for the report of what went wrong.
        limits.cap_memory(None)
        outcome = failure_of(error)
        return outcome, store.pack(cell, outcome)


def _check_outcome(outcome: object) -> CellOutcome:
    if not isinstance(outcome, CellOutcome):
        raise TypeError(f"execute must return a CellOutcome, got {type(outcome).__name__}")
    return outcome


def failure_of(error: BaseException) -> CellOutcome:
    """The outcome of a cell that raised `error`."""
    if limits.is_exhaustion(error):
        # Without the number of bytes: it depends on what the process held before.
        return CellOutcome(Status.OOM, {"error": "MemoryError", "message": "memory ran out"})
    status = Status.REFUSED if isinstance(error, KnowledgeError | UnsuitableError) else Status.ERROR
    message = str(error)
    # Foreign messages may print whole arrays.
    if not isinstance(error, LeakscopeError) and len(message) > 500:
        message = message[:500] + "…"
    return CellOutcome(status, {"error": type(error).__name__, "message": message, "where": _where(error)})


def _where(error: BaseException) -> str:
    """Module and line that raised, without the path of this machine."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"
