"""Opening a file that may come from anyone: regular files only, bounded, every failure one typed error."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import torch
from torch import Tensor

from leakscope.errors import BadInputError, LeakscopeError, UsageError

# What damaged bytes provoke in zipfile, zlib, json, struct, torch and the allocator. TypeError and
# AttributeError are absent on purpose: those would be mistakes of ours and must stay visible.
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    ArithmeticError,
    LookupError,
    MemoryError,
    RecursionError,
    RuntimeError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)


class Stream(Protocol):
    """Anything that fills a buffer: a file or one member of a zip archive."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Put bytes into `buffer`; return how many."""
        ...


@dataclass(frozen=True)
class ByteSource:
    """One opened input file, its size, and how many bytes its tensors may occupy."""

    path: str
    file: BinaryIO
    size: int
    budget: int

    def error(self, problem: str, *, tensor: str | None = None) -> BadInputError:
        """Return the one error readers raise: file, tensor, expected and actual, what to do."""
        where = "" if tensor is None else f", tensor {show(tensor)}"
        return BadInputError(f"{show(self.path)}{where}: {problem}")

    def read(self, offset: int, count: int) -> bytes:
        """Return exactly `count` bytes from `offset`."""
        self.file.seek(offset)
        data = self.file.read(count)
        if len(data) != count:
            raise self.error(f"expected {count} bytes at offset {offset}, got {len(data)}; the file is cut short")
        return data

    def check_total(self, total: int) -> None:
        """Refuse tensors that together need more memory than the budget."""
        if total > self.budget:
            raise self.error(
                f"tensors need {total:,} bytes, the budget is {self.budget:,}; "
                "pass a larger budget_mb if the file is meant to be this large"
            )


def show(text: str, limit: int = 120) -> str:
    """Quote untrusted text for a message: escapes visible, length bounded."""
    return repr(text if len(text) <= limit else text[:limit] + "…")


def fill(tensor: Tensor, stream: Stream) -> int:
    """Read bytes of `stream` into the contiguous `tensor`; return how many were missing."""
    if tensor.numel() == 0:
        return 0
    view = memoryview(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    done = 0
    while done < len(view):
        got = stream.readinto(view[done:])
        if not got:
            break
        done += got
    return len(view) - done


def budget_bytes(budget_mb: float) -> int:
    """Return the memory budget in bytes."""
    if not budget_mb > 0 or budget_mb == float("inf"):
        raise UsageError(f"budget_mb must be a positive number of megabytes, got {budget_mb}")
    return int(budget_mb * 2**20)


@contextlib.contextmanager
def open_source(path: str | os.PathLike[str], *, budget_mb: float) -> Iterator[ByteSource]:
    """Open a regular file for reading; turn every kind of damage into a `BadInputError`."""
    budget = budget_bytes(budget_mb)
    name = path_text(path)
    with _report_damage(name), _open_regular(name) as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise BadInputError(f"{show(name)}: expected tensors, got an empty file; write or copy it again")
        yield ByteSource(name, file, size, budget)


@contextlib.contextmanager
def open_bytes(data: bytes, *, name: str) -> Iterator[ByteSource]:
    """As `open_source`, for the content of a file that was read already."""
    with _report_damage(name):
        yield ByteSource(name, io.BytesIO(data), len(data), len(data))


@contextlib.contextmanager
def _report_damage(name: str) -> Iterator[None]:
    try:
        yield
    except LeakscopeError:
        raise
    except _DAMAGE as error:
        raise BadInputError(
            f"{show(name)}: cannot be read ({type(error).__name__}: {str(error)[:200]}); "
            "the file is damaged or not what its name says: write or copy it again"
        ) from error


def path_text(path: str | os.PathLike[str]) -> str:
    """Return `path` as text, or say what is wrong with it."""
    try:
        name = os.fspath(path)
    except TypeError:
        raise UsageError(f"expected a path, got {type(path).__name__}") from None
    if not isinstance(name, str):
        raise UsageError("expected a path as text, got bytes; use os.fsdecode first")
    if not name or "\0" in name:
        raise BadInputError(f"{show(name)}: a path must be non-empty and hold no NUL character")
    return name


def _open_regular(name: str) -> BinaryIO:
    _check_mode(name, _lstat(name).st_mode)
    # O_NONBLOCK: a FIFO put in place after the check must not hang us.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(name, flags | getattr(os, "O_BINARY", 0))
    try:
        _check_mode(name, os.fstat(descriptor).st_mode)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _lstat(name: str) -> os.stat_result:
    try:
        return os.lstat(name)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise BadInputError(f"{show(name)}: no such file; check the path") from None
        raise


def _check_mode(name: str, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO"}
    kinds |= {stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
    kind = kinds.get(stat.S_IFMT(mode), "something else")
    raise BadInputError(f"{show(name)}: expected a regular file, got {kind}; pass the file itself")
