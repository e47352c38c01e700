"""What a sweep may use, what a worker process uses, and whether the kernel killed for memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

from leakscope.errors import UsageError

_MB = 1 << 20
_SIGNS = ("can't allocate memory", "cannot allocate memory", "out of memory", "std::bad_alloc")
# Below this, a worker has no room for a cell besides itself.
_HEADROOM_MB = 32
# Of a container, in the second and the first version of control groups.
_GROUP_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Limits:
    """What a sweep may use: processes, seconds per cell, megabytes of all workers together, seconds in all."""

    workers: int = 1
    timeout: float | None = None
    memory_mb: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise UsageError(f"workers must be ≥ 1, got {self.workers}")
        if self.timeout is not None and not self.timeout > 0:
            raise UsageError(f"timeout must be > 0 seconds or None, got {self.timeout}")
        if self.memory_mb is not None and self.memory_mb < 1:
            raise UsageError(f"memory_mb must be ≥ 1 or None, got {self.memory_mb}")
        if self.seconds is not None and not self.seconds > 0:
            raise UsageError(f"seconds must be > 0 or None, got {self.seconds}")

    def share_mb(self, *, alone: bool) -> int | None:
        """What one worker may use: an equal share, or everything when it runs alone."""
        if self.memory_mb is None:
            return None
        return self.memory_mb if alone else self.memory_mb // self.workers

    def check_share(self, own_mb: float) -> None:
        """Refuse a share that a worker process of `own_mb` fills before its first cell."""
        share = self.share_mb(alone=False)
        if share is not None and share < own_mb + _HEADROOM_MB:
            least = self.workers * (int(own_mb) + 1 + _HEADROOM_MB)
            raise UsageError(
                f"memory_mb={self.memory_mb} gives each of {self.workers} workers {share} MB, but a worker alone "
                f"needs {own_mb:.0f} MB; allow {least} MB or more, or use fewer workers"
            )


def available_mb() -> float | None:
    """Memory that is free now, within what a container allows; None where the system does not tell."""
    found = [value for value in (_free_mb(), *map(_group_mb, _GROUP_FILES)) if value is not None]
    return min(found, default=None)


def _free_mb() -> float | None:
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) / 1024
    return None


def _group_mb(limit: str) -> float | None:
    # "max" where there is none. What is used of it counts files that the kernel would drop: it tells nothing.
    with contextlib.suppress(OSError, ValueError):
        return int(Path(limit).read_text()) / _MB
    return None


def is_exhaustion(error: BaseException) -> bool:
    """Whether an exception says that memory ran out; torch raises a RuntimeError for it."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in _SIGNS)
    )


def cap_memory(megabytes: int | None) -> None:
    """Cap this process's private memory; None lifts the cap.

    RLIMIT_DATA, not RLIMIT_AS: torch maps gigabytes of address space it never touches.
    """
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard if megabytes is None else megabytes * _MB, hard))


def private_mb() -> float:
    """Private memory of this process as RLIMIT_DATA counts it; 0 where the system does not tell."""
    return _status("VmData")


def release_memory() -> None:
    """Hand freed memory back to the system, so that the next peak counts nothing of the past."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def reset_peak() -> None:
    """Start measuring the peak again, so that a small cell does not inherit a big one's."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    """Highest resident memory since `reset_peak`, or since the start where it cannot be reset."""
    found = _status("VmHWM")
    if found:
        return found
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / _MB


def kernel_kills() -> int:
    """How many processes the kernel has killed for memory so far; 0 where it does not tell."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _status(field: str) -> float:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
    return 0.0
