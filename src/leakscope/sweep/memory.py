"""What a worker process uses, what it may use, and whether the kernel killed for memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import resource
import sys
from pathlib import Path

_MB = 1 << 20
_SIGNS = ("can't allocate memory", "cannot allocate memory", "out of memory", "std::bad_alloc")


def is_exhaustion(error: BaseException) -> bool:
    """Whether an exception says that memory ran out; torch raises a RuntimeError for it."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in _SIGNS)
    )


def limit(megabytes: int | None) -> None:
    """Cap this process's private memory; None lifts the cap.

    RLIMIT_DATA, not RLIMIT_AS: torch maps gigabytes of address space it never touches.
    """
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard if megabytes is None else megabytes * _MB, hard))


def private_mb() -> float:
    """Private memory of this process as RLIMIT_DATA counts it; 0 where the system does not tell."""
    return _status("VmData")


def release() -> None:
    """Hand freed memory back to the system, so that the next peak counts nothing of the past."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def reset_peak() -> None:
    """Start measuring the peak afresh, so that a small cell does not inherit a big one's."""
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
