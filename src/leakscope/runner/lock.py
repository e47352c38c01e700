"""One run per directory: an advisory lock that dies with its holder.

The kernel drops a `flock` when its process ends, however it ends. The file also names the
holder (pid, start time, boot), for the message and for file systems that ignore `flock`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leakscope.errors import StorageError, UsageError


@contextmanager
def hold(path: Path) -> Iterator[bool]:
    """Hold the lock at `path`; yields whether a dead process had left it behind.

    Raises:
        UsageError: another living process holds it.
    """
    file = _open(path)
    try:
        _acquire(file, path)
        stale = _claim(file, path)
        try:
            yield stale
        finally:
            # The file stays, empty: removing a locked file lets two later runs lock two files.
            os.ftruncate(file, 0)
    finally:
        os.close(file)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"cannot open {path}: {error.strerror}") from error


def _acquire(file: int, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _busy(path, _holder(file)) from None
    except OSError as error:
        # Some network file systems have no flock; the holder named in the file then decides.
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
            raise


def _claim(file: int, path: Path) -> bool:
    holder = _holder(file)
    if holder and _alive(holder):
        raise _busy(path, holder)
    stale = bool(os.fstat(file).st_size)
    text = json.dumps(_identity(os.getpid())).encode()
    try:
        os.ftruncate(file, 0)
        os.pwrite(file, text, 0)
        os.fsync(file)
    except OSError as error:
        # This process lives on: its name must not keep its own next try out.
        with contextlib.suppress(OSError):
            os.ftruncate(file, 0)
        raise StorageError(f"cannot write {path}: {error.strerror}; {len(text)} bytes needed") from error
    return stale


def _busy(path: Path, holder: dict[str, object]) -> UsageError:
    who = f"process {holder['pid']}" if holder else "another process"
    return UsageError(f"{path.parent} is being run by {who}; wait until it ends or stop it, then run again")


def _holder(file: int) -> dict[str, object]:
    """Who the file names; empty when nobody, or when the name was torn in the writing."""
    with contextlib.suppress(ValueError):
        found = json.loads(os.pread(file, 4096, 0))
        if isinstance(found, dict) and isinstance(found.get("pid"), int):
            return found
    return {}


def _alive(holder: dict[str, object]) -> bool:
    pid = int(str(holder["pid"]))
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    # A reused pid has another start time; a rebooted machine another boot.
    return _identity(pid) == holder


def _identity(pid: int) -> dict[str, object]:
    try:
        # The command name may hold spaces and brackets: count fields behind the last bracket.
        start = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, IndexError, ValueError):
        start, boot = 0, ""
    return {"pid": pid, "start": start, "boot": boot}
