"""Cells that behave, misbehave and leave a trace; imported by name in worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from leakscope.errors import BadInputError, KnowledgeError
from leakscope.runner import Cell, CellOutcome, frames
from leakscope.types import Status

SIDE = "LEAKSCOPE_TEST_SIDE"


def cell(do: str = "work", **spec: Any) -> Cell:
    """A cell that does `do`."""
    return Cell.of({"do": do, **spec}, code_version="test", label=f"{do} {spec.get('seed', '')}".strip())


def execute(spec: Mapping[str, Any]) -> CellOutcome:
    """Leave a trace, then do what the spec says."""
    note = os.open(os.environ[SIDE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(note, f"{spec['do']} {spec.get('seed', '')} {os.getpid()}\n".encode())
    os.close(note)
    return _BEHAVIOURS[spec["do"]](spec)


def execute_with(spec: Mapping[str, Any], *, settings: Mapping[str, Any]) -> CellOutcome:
    """Say what came with the spec."""
    return CellOutcome(Status.OK, {"settings": dict(settings)})


def traces() -> list[str]:
    """What ran so far, one entry per execution."""
    path = Path(os.environ[SIDE])
    return [" ".join(line.split()[:-1]) for line in path.read_text().splitlines()] if path.exists() else []


def processes() -> list[int]:
    """Process of each execution so far."""
    path = Path(os.environ[SIDE])
    return [int(line.split()[-1]) for line in path.read_text().splitlines()] if path.exists() else []


def executions() -> Counter[str]:
    """How often each cell ran."""
    return Counter(traces())


def _work(spec: Mapping[str, Any]) -> CellOutcome:
    time.sleep(spec.get("seconds", 0))
    rng = torch.Generator().manual_seed(spec.get("seed", 0))
    # Large enough that two threads would sum in another order.
    values = torch.randn(300, 300, generator=rng)
    unseeded = torch.rand(3)
    tensors = {"product": values @ values.T, "row": values[0], "view": values[0], "unseeded": unseeded}
    return CellOutcome(Status.OK, {"sum": float(values.sum()), "threads": torch.get_num_threads()}, tensors)


def _nan(spec: Mapping[str, Any]) -> CellOutcome:
    return CellOutcome(Status.NAN, {"loss": float("nan")}, {"x": torch.tensor([float("nan")])})


def _die(spec: Mapping[str, Any]) -> CellOutcome:
    os.kill(os.getpid(), signal.SIGKILL)
    return _work(spec)


def _die_once(spec: Mapping[str, Any]) -> CellOutcome:
    return _work(spec) if traces().count("die-once") > 1 else _die(spec)


def _hang(spec: Mapping[str, Any]) -> CellOutcome:
    # Something the cell has started, which must not survive it.
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(os.environ[SIDE] + ".child").write_text(str(child.pid))
    time.sleep(600)
    return _work(spec)


def _leak(spec: Mapping[str, Any]) -> CellOutcome:
    torch.zeros(spec["megabytes"], 1 << 20, dtype=torch.uint8)
    return _work(spec)


def _bad(spec: Mapping[str, Any]) -> CellOutcome:
    raise BadInputError("expected a whole file, got half of one; send it again")


def _refuse(spec: Mapping[str, Any]) -> CellOutcome:
    raise KnowledgeError("needs the labels; use scenario B")


def _exit(spec: Mapping[str, Any]) -> CellOutcome:
    raise SystemExit(3)


def _stop(spec: Mapping[str, Any]) -> CellOutcome:
    os.kill(os.getpid(), signal.SIGSTOP)
    return _work(spec)


def _freeze(spec: Mapping[str, Any]) -> CellOutcome:
    """Answer up to byte `stop` and stop there, as a process does whose machine is suspended."""

    def write_some(descriptor: int, frame: bytes) -> None:
        os.write(descriptor, frame[: spec["stop"]])
        os.kill(os.getpid(), signal.SIGSTOP)

    frames.write_frame = write_some
    return _work(spec)


_BEHAVIOURS = {
    "freeze": _freeze,
    "stop": _stop,
    "work": _work,
    "nan": _nan,
    "die": _die,
    "die-once": _die_once,
    "hang": _hang,
    "leak": _leak,
    "bad": _bad,
    "refuse": _refuse,
    "exit": _exit,
}
