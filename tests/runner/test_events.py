"""Progress suits where it is shown, and obeys no name."""

from __future__ import annotations

import io

import pytest

from leakscope.progress import span
from leakscope.runner.events import Event, EventKind, show_events
from leakscope.types import Status

EVENTS = [
    Event(EventKind.RECOVER, 0, 4, detail="took over the lock of a process that has ended"),
    Event(EventKind.REUSE, 2, 4, key="a", name="dlg 0", status=Status.OK),
    Event(EventKind.REUSE, 2, 4, key="b", name="dlg 1", status=Status.OK),
    Event(EventKind.START, 2, 4, key="c", name="agic [bold]0\x1b[31m", left=62.0),
    Event(EventKind.RETRY, 2, 4, key="c", name="agic [bold]0\x1b[31m", detail="worker killed by SIGKILL"),
    Event(EventKind.START, 2, 4, key="c", name="agic [bold]0\x1b[31m", left=62.0),
    Event(
        EventKind.FINISH, 3, 4, key="c", name="agic [bold]0\x1b[31m", status=Status.DIVERGED, seconds=1.25, left=3661.0
    ),
    Event(EventKind.START, 3, 4, key="d", name="idlg 0", left=2.0),
]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, *, quiet: bool = False) -> str:
    with show_events(stream, quiet=quiet) as listener:
        for event in EVENTS:
            listener(event)
    return stream.getvalue()


def test_lines_elsewhere() -> None:
    assert shown(io.StringIO()).splitlines() == [
        "recover: took over the lock of a process that has ended",
        "2 of 4 cells were finished before",
        "retry agic [bold]0�[31m: worker killed by SIGKILL",
        "[3/4] diverged agic [bold]0�[31m 1.2 s, 1:01:01 left",
    ]


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    text = shown(Terminal())
    assert "3/4" in text
    assert "0:00:02 left" in text
    assert "idlg 0" in text
    assert "retry agic [bold]0�[31m: worker killed by SIGKILL" in text
    assert "\x1b[31m:" not in text


def test_nothing_when_quiet() -> None:
    assert shown(Terminal(), quiet=True) == ""
    assert shown(io.StringIO(), quiet=True) == ""


def test_standard_error_unless_told(capsys: pytest.CaptureFixture[str]) -> None:
    with show_events() as listener:
        listener(EVENTS[0])
    assert capsys.readouterr().err == "recover: took over the lock of a process that has ended\n"


@pytest.mark.parametrize(("seconds", "text"), [(None, "?"), (0.4, "0:00:00"), (59.6, "0:01:00"), (36_000, "10:00:00")])
def test_spans_read_as_hours_minutes_seconds(seconds: float | None, text: str) -> None:
    assert span(seconds) == text
