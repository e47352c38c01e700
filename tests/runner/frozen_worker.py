"""A worker that stops in the middle of its answer; imported by name in worker processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any

from leakscope.audits.execute import execute_planned
from leakscope.runner import CellOutcome, frames

FROZEN = "LEAKSCOPE_TEST_FROZEN"


def execute_and_freeze(spec: Mapping[str, Any], *, inputs: Mapping[str, Any]) -> CellOutcome:
    """Compute a cell, and stop as a suspended machine does when its answer is half sent."""

    def write_half(descriptor: int, frame: bytes) -> None:
        os.write(descriptor, frame[: len(frame) // 2])
        with open(os.environ[FROZEN], "w", encoding="utf-8") as note:
            note.write(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)

    frames.write_frame = write_half
    return execute_planned(spec, inputs=inputs)
