"""What a running sweep tells, one small value per thing that happened, and what it is told: Ctrl-C.

Events name cells by label and key. They never hold a spec, a record, a tensor or the text
of an exception, so they may be printed and logged.
"""

from __future__ import annotations

import enum
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from leakscope.types import Status


class Kind(str, enum.Enum):
    """What happened."""

    REUSE = "reuse"
    START = "start"
    FINISH = "finish"
    RETRY = "retry"
    RERUN = "rerun"
    RECOVER = "recover"
    STOP = "stop"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Event:
    """One thing that happened; `left` is the estimated number of seconds until the end."""

    kind: Kind
    done: int
    total: int
    key: str = ""
    name: str = ""
    status: Status | None = None
    seconds: float = 0.0
    left: float | None = None
    detail: str = ""


OnEvent = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Listen to nothing."""


class Interrupts:
    """Ctrl-C as a count instead of an exception in the middle of a write.

    While in use, each Ctrl-C adds one to `count`; the caller's handler returns afterwards.
    """

    def __init__(self) -> None:
        """Start at zero."""
        self.count = 0
        self._previous: Any = None

    def __enter__(self) -> Interrupts:
        # Python delivers signals to the main thread only, and lets only it choose handlers.
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
