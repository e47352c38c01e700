"""How many ciphertexts were opened with a key: a count that only grows, over restarts too where a file keeps it."""

from __future__ import annotations

import os
from pathlib import Path

from leakscope.errors import BadInputError, StorageError, UsageError

try:
    import fcntl
except ImportError:  # A system without file locks: one process at a time.
    fcntl = None  # type: ignore[assignment]

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class OpeningCount:
    """Counts up to a limit. With a path, every process that uses the key counts in the same file."""

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._spent = path, 0

    @property
    def spent(self) -> int:
        """Ciphertexts opened so far."""
        return self._spent if self._path is None else _read(self._path)

    def spend(self, count: int, *, limit: int) -> None:
        """Count `count` more, or refuse: what is opened beyond the limit could give the key away."""
        if self._path is None:
            _check(self._spent, count, limit)
            self._spent += count
            return
        try:
            descriptor = os.open(self._path, _FLAGS, 0o600)
            with os.fdopen(descriptor, "r+b") as file:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX)
                _check(_read(self._path), count, limit)
                file.write(f"{count}\n".encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(
                f"{self._path.name}: the openings of this key cannot be counted ({error.strerror}); nothing was opened"
            ) from error


def _read(path: Path) -> int:
    if not path.exists():
        return 0
    lines = path.read_bytes().split()
    if not all(line.isdigit() for line in lines):
        raise BadInputError(f"{path.name}: the count of openings is damaged, so nothing is opened; make new keys")
    return sum(int(line) for line in lines)


def _check(spent: int, count: int, limit: int) -> None:
    if spent + count > limit:
        raise UsageError(
            f"these keys may open {limit:,} ciphertexts in all, {spent:,} are opened and {count:,} more are asked for; "
            "make new keys with keygen, for each run its own"
        )
