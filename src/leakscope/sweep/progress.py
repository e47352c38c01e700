"""Shows a sweep's events: a bar on a terminal, lines elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from leakscope.sweep.events import Event, Kind, OnEvent, ignore

_NOTES = (Kind.RETRY, Kind.RERUN, Kind.RECOVER, Kind.STOP)


@contextmanager
def show(stream: TextIO | None = None, *, quiet: bool = False) -> Iterator[OnEvent]:
    """Yield a listener for `run(on_event=…)` that suits `stream` (standard error unless given).

    Example:
        with show() as listener:
            run(cells, execute, directory, on_event=listener)
    """
    out = sys.stderr if stream is None else stream
    if quiet:
        yield ignore
    elif out.isatty():
        with _bar(out) as listener:
            yield listener
    else:
        yield Lines(out)


def span(seconds: float | None) -> str:
    """Hours, minutes and seconds, as in 1:02:03; '?' when unknown."""
    if seconds is None:
        return "?"
    whole = round(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"


def printable(name: str) -> str:
    """A name without the control characters a terminal would obey."""
    return "".join(mark if mark.isprintable() else "�" for mark in name)


class Lines:
    """One plain line per finished cell and per thing worth knowing."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream`."""
        self._stream = stream
        self._reused = 0

    def __call__(self, event: Event) -> None:
        """Print the line of an event, if it has one."""
        if event.kind is Kind.REUSE:
            # Counted and told in one line: a resumed run may reuse thousands.
            self._reused += 1
            return
        if self._reused:
            self._print(f"{self._reused} of {event.total} cells were finished before")
            self._reused = 0
        if event.kind is Kind.FINISH:
            self._print(
                f"[{event.done}/{event.total}] {event.status} {printable(event.name)} "
                f"{event.seconds:.1f} s, {span(event.left)} left"
            )
        elif event.kind in _NOTES:
            self._print(note(event))

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


def note(event: Event) -> str:
    """The line of an event that is not about progress."""
    subject = f" {printable(event.name)}" if event.name else ""
    return f"{event.kind}{subject}: {event.detail}"


@contextmanager
def _bar(stream: TextIO) -> Iterator[OnEvent]:
    # Imported here: workers import this package and need no terminal.
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]} left"),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(file=stream)) as bar:
        task = bar.add_task("starting", total=None, left="?")
        running: dict[str, str] = {}

        def listen(event: Event) -> None:
            if event.kind is Kind.START:
                running[event.key] = escape(printable(event.name))
            elif event.kind in (Kind.FINISH, Kind.RETRY):
                running.pop(event.key, None)
            if event.kind in _NOTES:
                bar.console.print(note(event), markup=False, highlight=False)
            bar.update(
                task,
                completed=event.done,
                total=event.total,
                left=span(event.left),
                description=", ".join(running.values()),
            )

        yield listen
