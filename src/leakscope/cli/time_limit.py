"""`--timeout` of a command that works in its own process: a run that nobody watches must end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from leakscope.errors import InconclusiveError

# Three years: what the system's timer can hold, and as good as no limit.
_MOST_SECONDS = 1e8


class _TimeIsOverError(BaseException):
    """Not an `Exception`: whoever catches those on the way must not catch this."""


@contextlib.contextmanager
def time_limit(seconds: float, what: str) -> Iterator[None]:
    """End the block with an `InconclusiveError` of `what` after so many seconds; 0 is no limit. Main thread only."""
    if not seconds:
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _TimeIsOverError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, min(seconds, _MOST_SECONDS))
    try:
        yield
    except _TimeIsOverError:
        raise InconclusiveError(
            f"{what}: no result within {seconds:g} s; give a longer --timeout, or an attack with fewer steps"
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
