"""A sweep that runs out of time ends cleanly, and the next call continues it."""

from __future__ import annotations

from pathlib import Path

import pytest
import sweep_workloads as workloads

from leakscope.errors import UsageError
from leakscope.runner import Event, EventKind, run

CELLS = [workloads.cell(seed=seed, seconds=0.1) for seed in range(3)]


@pytest.mark.usefixtures("side_file")
def test_what_was_running_ends_and_the_next_call_does_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = []
    clock = _Clock(monkeypatch)

    def listen(event: Event) -> None:
        events.append(event)
        if event.kind is EventKind.START:
            clock.forward = 100.0

    first = run(CELLS, workloads.execute, tmp_path / "run", seconds=60.0, on_event=listen)
    assert first.out_of_time
    assert not first.interrupted
    assert first.executed == 1
    assert [outcome is None for outcome in first.outcomes] == [False, True, True]
    assert "the time is over" in next(event for event in events if event.kind is EventKind.STOP).detail
    second = run(CELLS, workloads.execute, tmp_path / "run", seconds=600.0)
    assert (second.executed, second.reused, second.out_of_time) == (2, 1, False)


def test_no_time_at_all_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="seconds must be > 0"):
        run(CELLS, workloads.execute, tmp_path / "run", seconds=0.0)


class _Clock:
    """The clock of the dispatch, which a test may put forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import time
        from types import SimpleNamespace

        from leakscope.runner import dispatch

        self.forward = 0.0
        monkeypatch.setattr(dispatch, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + self.forward))
