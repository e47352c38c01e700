"""One progress printer: what it says, how often, and what it estimates."""

from __future__ import annotations

import io

import pytest

from leakscope import progress
from leakscope.progress import show_progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still until it is set."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_line_comes_only_now_and_then(clock: list[float]) -> None:
    stream = io.StringIO()
    made = []
    with show_progress(stream) as shown, shown.count("steps", 100) as counter:
        for step in range(1, 26):
            clock[0] += 1.0
            counter.update(step, lambda step=step: made.append(step) or f"distance {step}")
    assert stream.getvalue().splitlines() == [
        "[10/100] distance 10, 0:01:30 left",
        "[20/100] distance 20, 0:01:20 left",
    ]
    assert made == [10, 20], "a text that is not shown is not made"


def test_steps_of_an_earlier_run_do_not_count_as_pace(clock: list[float]) -> None:
    stream = io.StringIO()
    with show_progress(stream) as shown, shown.count("steps", 100, every=0.0) as counter:
        clock[0] += 2.0
        counter.update(91, "goes on")
    assert stream.getvalue() == "[91/100] goes on, 0:00:18 left\n"


def test_an_attempt_that_begins_again_has_its_own_pace(clock: list[float]) -> None:
    stream = io.StringIO()
    with show_progress(stream) as shown, shown.count("steps", 10, every=0.0) as counter:
        for done in (1, 2, 1, 2):
            clock[0] += 50.0 if done == 1 else 4.0
            counter.update(done, "try")
    assert stream.getvalue().splitlines()[-1] == "[2/10] try, 0:00:16 left"


def test_the_same_count_again_is_no_new_attempt(clock: list[float]) -> None:
    stream = io.StringIO()
    with show_progress(stream) as shown, shown.count("pieces", 100, every=0.0) as counter:
        for done in (1, 50, 50, 51):
            clock[0] += 10.0
            counter.update(done, "piece")
    # 51 of 100 in 40 s; counted from the second 50 on it would be 0:00:09.
    assert stream.getvalue().splitlines()[-1] == "[51/100] piece, 0:00:38 left"


def test_the_end_has_no_time_left_and_a_caller_may_know_better(clock: list[float]) -> None:
    stream = io.StringIO()
    with show_progress(stream) as shown, shown.count("cells", every=0.0) as counter:
        counter.update(1, "a", total=2, left=7.0)
        counter.update(2, "b")
    assert stream.getvalue().splitlines() == ["[1/2] a, 0:00:07 left", "[2/2] b"]


def test_names_cannot_command_a_terminal() -> None:
    stream = io.StringIO()
    with show_progress(stream) as shown, shown.count("x", 1, every=0.0) as counter:
        counter.update(1, "a\x1b[31mb\nc")
        shown.note("d\x07")
    assert stream.getvalue() == "[1/1] a�[31mb�c\nd�\n"


def test_two_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    with show_progress(stream) as shown:
        shown.start("attacks", 4).update(1, "alone fc1")
        shown.start("idlg [red]", 40).update(7, lambda: "distance 0.5")
        with shown.count("gone", 9) as gone:
            gone.update(3)
        shown.note("noted")
    text = stream.getvalue()
    for part in ("attacks", "1/4", "alone fc1", "idlg [red]", "7/40", "distance 0.5", "noted", "left"):
        assert part in text
    assert "3/9" not in text


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_quiet_is_quiet(stream: io.StringIO) -> None:
    with show_progress(stream, quiet=True) as shown, shown.count("x", 1, every=0.0) as counter:
        counter.update(1, "a")
        counter.describe("b")
        shown.note("c")
    assert stream.getvalue() == ""
