"""What a running sweep tells, one small value per thing that happened, how it is shown, and what can stop it.

Events name cells by label and key. They never hold a spec, a record, a tensor or the text
of an exception, so they may be printed and logged.
"""

from __future__ import annotations

import enum
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, ClassVar, TextIO

from leakscope.progress import Progress, show_progress
from leakscope.types import Status


class EventKind(str, enum.Enum):
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

    kind: EventKind
    done: int
    total: int
    key: str = ""
    name: str = ""
    status: Status | None = None
    seconds: float = 0.0
    left: float | None = None
    detail: str = ""


OnEvent = Callable[[Event], None]
_NOTES = (EventKind.RETRY, EventKind.RERUN, EventKind.RECOVER, EventKind.STOP)


def ignore(event: Event) -> None:
    """Listen to nothing."""


@contextmanager
def show_events(stream: TextIO | None = None, *, quiet: bool = False) -> Iterator[OnEvent]:
    """Yield a listener for `run(on_event=…)` that suits `stream` (standard error unless given).

    Example:
        with show_events() as listener:
            run(cells, execute, directory, on_event=listener)
    """
    with show_progress(stream, quiet=quiet) as progress:
        yield _Listener(progress)


class _Listener:
    """One line per finished cell and per note; the cells at work beside a bar."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        # Every finished cell has its line: a cell takes seconds to hours.
        self._cells = progress.start("cells", every=0.0)
        self._running: dict[str, str] = {}
        self._reused = 0

    def __call__(self, event: Event) -> None:
        if event.kind is EventKind.REUSE:
            # Counted and told in one line: a resumed run may reuse thousands.
            self._reused += 1
            return
        if self._reused:
            self._progress.note(f"{self._reused} of {event.total} cells were finished before")
            self._reused = 0
        if event.kind is EventKind.START:
            self._running[event.key] = event.name
        elif event.kind in (EventKind.FINISH, EventKind.RETRY):
            self._running.pop(event.key, None)
        if event.kind is EventKind.FINISH:
            text = f"{event.status} {event.name} {event.seconds:.1f} s"
            self._cells.update(event.done, text, total=event.total, left=event.left)
        elif event.kind in _NOTES:
            self._progress.note(_describe(event))
        self._cells.describe(", ".join(self._running.values()), left=event.left)


def _describe(event: Event) -> str:
    """The line of an event that is not about progress."""
    return f"{event.kind}{f' {event.name}' if event.name else ''}: {event.detail}"


class Interrupts:
    """Ctrl-C and SIGTERM as a count instead of an exception, or the end, in the middle of a write.

    While in use, each Ctrl-C adds one to `count`: the first lets running cells end. SIGTERM adds two: who sends it
    kills a few seconds later, and what is finished must be written by then. `signal` is the number of the last one.
    The caller's handlers return afterwards.
    """

    _WEIGHTS: ClassVar = {signal.SIGINT: 1, signal.SIGTERM: 2}

    def __init__(self) -> None:
        """Start at zero."""
        self.count = 0
        self.signal = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        # Python delivers signals to the main thread only, and lets only it choose handlers.
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in self._WEIGHTS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            # None stands for a handler that was not set from Python, which Python cannot set again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        self.count += self._WEIGHTS[signal.Signals(number)]
