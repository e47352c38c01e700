"""Writing files whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path

from leakscope.errors import BadInputError, StorageError
from leakscope.files.opening import path_text, show

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def private_folder(path: str | os.PathLike[str]) -> Path:
    """Create `path` and its missing parents, readable by the owner only; existing folders stay as they are."""
    folder = Path(_target_text(path))
    try:
        for part in [*reversed(folder.parents), folder]:
            # os.makedirs gives its mode to the last folder only.
            with contextlib.suppress(FileExistsError):
                part.mkdir(mode=0o700)
                # A folder that is only in memory takes all that is written into it along when the power fails.
                sync_folder(part.parent)
        if not os.path.isdir(folder):
            raise StorageError(f"{show(str(folder))}: expected a folder, got a file; choose another output folder")
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"{show(str(folder))}: cannot create the folder ({error.strerror}); choose another"
        ) from error
    return folder


def write_atomic(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write `data` to `path` so that a reader sees the old file or the new one, never half of it.

    A temporary file beside the target is written, flushed to disk and renamed over it. A crash or a
    full disk leaves the target untouched.

    Raises:
        StorageError: the bytes could not be written; the message says how many are needed.
    """
    target = Path(_target_text(path))
    private_folder(target.parent)
    if os.path.islink(target) or os.path.isdir(target):
        kind = "a symbolic link" if os.path.islink(target) else "a folder"
        raise StorageError(f"{show(str(target))}: expected a plain file or none, got {kind}; choose another name")
    # The target's name may already be as long as the file system allows.
    temporary = target.with_name(f".{target.name[:40]}.{secrets.token_hex(8)}.tmp")
    try:
        _write_and_sync(temporary, data)
        os.replace(temporary, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise _storage_error(target, len(data), error) from error
    except BaseException:
        # An interrupt must not leave the temporary file behind either.
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(target.parent)
    return target


def _target_text(path: str | os.PathLike[str]) -> str:
    try:
        return path_text(path)
    except BadInputError as error:
        raise StorageError(str(error)) from None


def _write_and_sync(temporary: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make what was created or renamed in a folder durable; file systems that cannot sync a folder go without."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _storage_error(target: Path, needed: int, error: OSError) -> StorageError:
    if error.errno in _FULL:
        return StorageError(
            f"{show(str(target))}: the disk is full, {needed:,} bytes are needed; free space and run it again"
        )
    return StorageError(f"{show(str(target))}: cannot write {needed:,} bytes ({error.strerror}); choose another place")
