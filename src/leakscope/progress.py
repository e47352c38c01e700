"""Progress: a bar with the time left on a terminal, a plain line now and then elsewhere, nothing when quiet.

Only counts, names and distances pass through here, never a pixel, a label or a record.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from leakscope.text import printable

if TYPE_CHECKING:
    from rich import progress as rich_progress
    from torch import Tensor

    from leakscope.attack import Attack, Watch

# Seconds between two lines, or two texts beside a bar, about steps that take far less.
LINE_EVERY = 10.0
_TEXT_EVERY = 0.5

Text = str | Callable[[], str]


class Counter(ABC):
    """Counts one task up to its total; the time left is taken from its pace unless the caller knows better."""

    def __init__(self, total: int | None) -> None:
        """Count up to `total`, which `update` may still change."""
        self.total = total
        self._began = time.monotonic()
        self._first: int | None = None
        self._last = 0

    def update(self, done: int, text: Text = "", *, total: int | None = None, left: float | None = None) -> None:
        """Say that `done` of the total are done. A `text` that costs something to make is a function."""
        self.total = self.total if total is None else total
        if self._first is None or done < self._last:
            # A continued run must not count earlier steps as its own; an attempt that starts again begins at 1.
            self._first = done - 1 if self._first is None else 0
            self._began = self._began if self._last == 0 else time.monotonic()
        self._last = done
        self._show(done, text, self._estimate(done) if left is None else left)

    def _estimate(self, done: int) -> float | None:
        if self.total is None or self._first is None or done <= self._first:
            return None
        return (time.monotonic() - self._began) / (done - self._first) * max(0, self.total - done)

    @abstractmethod
    def describe(self, text: str, *, left: float | None = None) -> None:
        """Say what is being done, where there is room for it: beside a bar."""

    @abstractmethod
    def close(self) -> None:
        """Take the counter away."""

    @abstractmethod
    def _show(self, done: int, text: Text, left: float | None) -> None: ...


class Progress(ABC):
    """Where counters and notes are shown."""

    @abstractmethod
    def start(self, title: str, total: int | None = None, *, every: float | None = None) -> Counter:
        """Begin to count. Lines are printed `every` seconds at most, LINE_EVERY unless given."""

    @abstractmethod
    def note(self, line: str) -> None:
        """Print one line about something else than progress."""

    @contextmanager
    def count(self, title: str, total: int | None = None, *, every: float | None = None) -> Iterator[Counter]:
        """As `start`, for a task that ends with the block."""
        counter = self.start(title, total, every=every)
        try:
            yield counter
        finally:
            counter.close()


@contextmanager
def show_progress(stream: TextIO | None = None, *, quiet: bool = False) -> Iterator[Progress]:
    """Yield what suits `stream`, which is standard error unless given.

    Example:
        >>> with show_progress(quiet=True) as progress, progress.count("training", 3) as counter:
        ...     counter.update(1, "error 0.5")
    """
    out = sys.stderr if stream is None else stream
    if quiet:
        yield _Silence()
    elif out.isatty():
        with _Bars.on(out) as bars:
            yield bars
    else:
        yield _Lines(out)


@contextmanager
def count_steps(progress: Progress, attack: Attack) -> Iterator[Watch | None]:
    """Yield what `attack.reconstruct(watch=…)` takes to show its steps; None for a closed form, which has none."""
    total = attack.effort.evaluations
    if total is None:
        yield None
        return
    with progress.count(attack.name, total) as counter:

        def watch(step: int, _inputs: Tensor, distances: Tensor) -> None:
            counter.update(step + 1, lambda: f"distance {float(distances.min()):.3g}")

        yield watch


def span(seconds: float | None) -> str:
    """Hours, minutes and seconds, as in 1:02:03; '?' when unknown."""
    if seconds is None:
        return "?"
    whole = round(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"


class _LineCounter(Counter):
    def __init__(self, stream: TextIO, total: int | None, every: float) -> None:
        super().__init__(total)
        self._stream, self._every = stream, every
        self._said = time.monotonic()

    def describe(self, text: str, *, left: float | None = None) -> None:
        pass

    def close(self) -> None:
        pass

    def _show(self, done: int, text: Text, left: float | None) -> None:
        now = time.monotonic()
        if now - self._said < self._every:
            return
        self._said = now
        said = printable(text if isinstance(text, str) else text())
        rest = "" if done == self.total else f", {span(left)} left"
        print(f"[{done}/{'?' if self.total is None else self.total}] {said}{rest}", file=self._stream, flush=True)


class _Lines(Progress):
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def start(self, title: str, total: int | None = None, *, every: float | None = None) -> Counter:
        return _LineCounter(self._stream, total, LINE_EVERY if every is None else every)

    def note(self, line: str) -> None:
        print(printable(line), file=self._stream, flush=True)


class _BarCounter(Counter):
    def __init__(self, bars: rich_progress.Progress, title: str, total: int | None) -> None:
        super().__init__(total)
        self._bars, self._said = bars, 0.0
        self._task = bars.add_task(_as_plain(title), total=total, left="?", text="")

    def describe(self, text: str, *, left: float | None = None) -> None:
        self._bars.update(self._task, text=_as_plain(text))
        if left is not None:
            self._bars.update(self._task, left=span(left))

    def close(self) -> None:
        self._bars.remove_task(self._task)

    def _show(self, done: int, text: Text, left: float | None) -> None:
        self._bars.update(self._task, completed=done, total=self.total, left=span(left))
        now = time.monotonic()
        if isinstance(text, str) or now - self._said > _TEXT_EVERY:
            self._said = now
            self._bars.update(self._task, text=_as_plain(text if isinstance(text, str) else text()))


class _Bars(Progress):
    def __init__(self, bars: rich_progress.Progress) -> None:
        self._bars = bars

    @classmethod
    @contextmanager
    def on(cls, stream: TextIO) -> Iterator[_Bars]:
        # Imported here: workers import this module and need no terminal.
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]} left"),
            TextColumn("{task.fields[text]}"),
        )
        with RichProgress(*columns, console=Console(file=stream), transient=True) as bars:
            yield cls(bars)

    def start(self, title: str, total: int | None = None, *, every: float | None = None) -> Counter:
        return _BarCounter(self._bars, title, total)

    def note(self, line: str) -> None:
        self._bars.console.print(printable(line), markup=False, highlight=False)


def _as_plain(text: str) -> str:
    """Text in which rich finds no markup and a terminal no command."""
    from rich.markup import escape

    return escape(printable(text))


class _SilentCounter(Counter):
    def describe(self, text: str, *, left: float | None = None) -> None:
        pass

    def close(self) -> None:
        pass

    def _show(self, done: int, text: Text, left: float | None) -> None:
        pass


class _Silence(Progress):
    def start(self, title: str, total: int | None = None, *, every: float | None = None) -> Counter:
        return _SilentCounter(total)

    def note(self, line: str) -> None:
        pass
