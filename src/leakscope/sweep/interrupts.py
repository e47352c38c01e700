"""Ctrl-C as a count instead of an exception in the middle of a write."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """While in use, each Ctrl-C adds one to `count`; the caller's handler returns afterwards."""

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
