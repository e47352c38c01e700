"""Where a client's part is run, and how long it is waited for."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from leakscope.errors import UsageError
from leakscope.federated.client_process import ClientProcess
from leakscope.federated.faults import Failure
from leakscope.federated.parts import ClientPart, Runner

# Seconds of a year: the operating system's clocks overflow far above it.
LONGEST_LIMIT = 31_536_000


class Unlimited(Runner):
    """Runs a part here, however long it takes."""

    def run(self, part: ClientPart) -> Any:
        """The result, or what it raised."""
        try:
            return part.run()
        except Exception as error:
            return Failure.of(part.client.number, error)


@dataclass(frozen=True)
class Patient(Runner):
    """Waits so many seconds for a part that the caller's own `call` runs, and then no longer.

    Nothing in one process can end it: it is left to itself, on a copy of the client, and what it still comes to is
    thrown away.
    """

    seconds: float

    def run(self, part: ClientPart) -> Any:
        """The result, or why there is none."""
        own = replace(part.client, memory=copy.deepcopy(part.client.memory))
        found: list[Any] = []
        thread = threading.Thread(
            target=lambda: found.append(Unlimited().run(replace(part, client=own))), daemon=True, name="client"
        )
        thread.start()
        thread.join(self.seconds)
        if not found:
            return Failure(
                part.client.number, f"TimeoutError: no reply within {self.seconds:g} s; it is not waited for"
            )
        part.client.memory = own.memory
        return found[0]


@contextmanager
def open_runner(time_limit: float | None, *, is_called: bool) -> Iterator[Runner]:
    """What runs clients under this limit; `is_called` where a caller's own function stands in for them."""
    if time_limit is not None and not 0 < time_limit <= LONGEST_LIMIT:
        raise UsageError(
            f"time_limit must be a number of seconds above 0 and at most {LONGEST_LIMIT} (a year), got {time_limit}; "
            "None applies no limit"
        )
    if time_limit is None:
        yield Unlimited()
    elif is_called:
        yield Patient(time_limit)
    else:
        with ClientProcess(time_limit) as process:
            yield process
