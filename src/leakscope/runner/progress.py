"""Shows a sweep's events: one count of its cells, and a line for each thing worth knowing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from leakscope.progress import Progress, show_progress
from leakscope.runner.events import Event, Kind, OnEvent

_NOTES = (Kind.RETRY, Kind.RERUN, Kind.RECOVER, Kind.STOP)


@contextmanager
def show(stream: TextIO | None = None, *, quiet: bool = False) -> Iterator[OnEvent]:
    """Yield a listener for `run(on_event=…)` that suits `stream` (standard error unless given).

    Example:
        with show() as listener:
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
        if event.kind is Kind.REUSE:
            # Counted and told in one line: a resumed run may reuse thousands.
            self._reused += 1
            return
        if self._reused:
            self._progress.note(f"{self._reused} of {event.total} cells were finished before")
            self._reused = 0
        if event.kind is Kind.START:
            self._running[event.key] = event.name
        elif event.kind in (Kind.FINISH, Kind.RETRY):
            self._running.pop(event.key, None)
        if event.kind is Kind.FINISH:
            text = f"{event.status} {event.name} {event.seconds:.1f} s"
            self._cells.update(event.done, text, total=event.total, left=event.left)
        elif event.kind in _NOTES:
            self._progress.note(_describe(event))
        self._cells.describe(", ".join(self._running.values()), left=event.left)


def _describe(event: Event) -> str:
    """The line of an event that is not about progress."""
    return f"{event.kind}{f' {event.name}' if event.name else ''}: {event.detail}"
