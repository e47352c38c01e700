"""Opening files that may come from anyone: regular files only, so that nothing waits and nothing is endless.

Whatever goes wrong is one `BadInputError` that names the file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from leakscope.errors import BadInputError, LeakscopeError, UsageError

_CHUNK = 2**20
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


def read_file(path: str | os.PathLike[str], *, most: int) -> bytes:
    """Return the content of a regular file of at most `most` bytes; a link is followed.

    Raises:
        BadInputError: There is no such file, it is something else (a FIFO, a device, a folder), or it is too large.
    """
    name = path_text(path)
    with report_damage(name), open_regular(follow_links(name), shown=name) as file:
        # Not by the size it declares: a file may grow while it is read.
        content = file.read(most + 1)
    if len(content) > most:
        raise BadInputError(f"{show(name)}: expected at most {most:,} bytes, got more; is it the right file?")
    return content


def hash_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a regular file, read piece by piece; a link is followed."""
    name = path_text(path)
    digest = hashlib.sha256()
    with report_damage(name), open_regular(follow_links(name), shown=name) as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
    return digest.hexdigest()


def show(text: str, limit: int = 120) -> str:
    """Quote untrusted text for a message: escapes visible, length bounded."""
    return repr(text if len(text) <= limit else text[:limit] + "…")


@contextlib.contextmanager
def report_damage(name: str) -> Iterator[None]:
    """Turn what damaged bytes provoke in the block into a `BadInputError` that names the file."""
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
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        raise BadInputError(f"{show(name)}: no file can have this name; half a character is in it") from None
    return name


def follow_links(path: str | os.PathLike[str]) -> str:
    """The file that a path leads to, for files that the user named: download caches consist of links."""
    name = path_text(path)
    with report_damage(name):
        return os.path.realpath(name)


def open_regular(name: str, *, shown: str | None = None) -> BinaryIO:
    """Open a regular file that is not a link; never waits, as opening a FIFO would. `shown` is its name in messages."""
    said = shown or name
    _check_mode(said, _lstat(name, said).st_mode)
    # O_NONBLOCK: a FIFO put in place after the check must not hang us.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(name, flags | getattr(os, "O_BINARY", 0))
    try:
        _check_mode(said, os.fstat(descriptor).st_mode)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _lstat(name: str, shown: str) -> os.stat_result:
    try:
        return os.lstat(name)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise BadInputError(f"{show(shown)}: no such file; check the path") from None
        raise


def _check_mode(name: str, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO"}
    kinds |= {stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
    kind = kinds.get(stat.S_IFMT(mode), "something else")
    raise BadInputError(f"{show(name)}: expected a regular file, got {kind}; pass the file itself")
