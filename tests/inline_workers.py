"""Workers that are no processes: cells run where the test runs.

Starting a process costs three seconds, most of it importing torch. A test that asks what an audit finds, and not how
its workers live and die, does without: `pytestmark = pytest.mark.usefixtures("inline_workers")`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leakscope.runner import worker as worker_side
from leakscope.runner.cells import Execute
from leakscope.runner.frames import pack_message
from leakscope.runner.workers import Worker, WorkerPool


class InlineWorker(Worker):
    """Runs its cell when it is asked for the answer."""

    def __init__(self, execute: Execute) -> None:
        super().__init__()
        self._execute = execute
        self._messages: list[Mapping[str, Any] | None] = [None]

    @property
    def awaited(self) -> None:
        """Nothing: an answer is there as soon as it is asked for."""
        return

    def kill(self) -> None:
        """Nothing runs on its own."""

    def _send(self, request: Mapping[str, Any]) -> None:
        self._messages.append(request)

    def _receive(self) -> bytes | None:
        if not self._messages:
            return None
        request = self._messages.pop(0)
        if request is None:
            return pack_message({"private_mb": 0.0})
        return pack_message(*worker_side.answer(request, self._execute))


class InlinePool(WorkerPool):
    """Starts workers that need no start."""

    remedy = "nothing can be wrong with them"

    def __init__(self, execute: Execute) -> None:
        self._execute = execute

    def start(self) -> Worker:
        """One more."""
        return InlineWorker(self._execute)

    def wait(self, workers: Sequence[Worker], *, seconds: float) -> None:
        """An answer is there already."""

    def close(self) -> None:
        """Nothing is held."""
