"""Time and memory that a cell may use where the user does not say: a run that nobody watches must end."""

from __future__ import annotations

from leakscope.audits.config import Config
from leakscope.audits.durations import TIMEOUT_SECONDS
from leakscope.execution import PROCESSES, is_elsewhere
from leakscope.runner.limits import Limits, available_mb

# With a budget, no cell is planned to take more than all of it: so often that long is no longer slow but stuck.
TIMES_THE_BUDGET, LEAST_TIMEOUT_SECONDS = 3.0, 600.0
# The rest is for this process and for others. A worker with its libraries alone takes up to 750 MB.
SHARE_OF_MEMORY, LEAST_WORKER_MB = 0.9, 2048


def choose_limits(config: Config, *, workers: int, seconds: float | None, on: str = PROCESSES) -> Limits:
    """The limits of a run: those of the configuration, where 0 is none, and else what suits budget and machine.

    Of a cluster this machine does not know the memory: there Ray alone watches it, unless the configuration says.
    """
    usual = TIMEOUT_SECONDS if config.budget is None else max(LEAST_TIMEOUT_SECONDS, TIMES_THE_BUDGET * config.budget)
    timeout = usual if config.timeout is None else config.timeout
    usual_mb = 0 if is_elsewhere(on) else default_memory_mb(workers)
    memory = usual_mb if config.memory_mb is None else config.memory_mb
    return Limits(workers, timeout or None, memory or None, seconds)


def default_memory_mb(workers: int) -> int:
    """What all workers together may use: most of what is free, and never less than they need to start."""
    free = available_mb()
    return 0 if free is None else max(int(SHARE_OF_MEMORY * free), LEAST_WORKER_MB * workers)
