"""What a running sweep tells: one small value per thing that happened.

Events name cells by label and key. They never hold a spec, a record, a tensor or the text
of an exception, so they may be printed and logged.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

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
