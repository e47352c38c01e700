"""Hashes of the files a cell reads: weights, and what options of attacks and defences name."""

from __future__ import annotations

import hashlib
import os
import stat
from functools import lru_cache
from pathlib import Path

from leakscope.errors import BadInputError
from leakscope.files.opening import show
from leakscope.registry import parse_spec, split_chain

_PIECE = 1 << 20


def hash_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a regular file, read in pieces; a file that has not changed since is not read again."""
    try:
        found = os.stat(path)
        # A pipe or a device may never end.
        if not stat.S_ISREG(found.st_mode):
            raise BadInputError(f"{show(str(path))}: expected a regular file; pass the file itself")
        return _hash(str(path), (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise BadInputError(f"cannot read {show(str(path))}: {why}; check the path") from error


@lru_cache(maxsize=1024)
def _hash(path: str, _version: tuple[int, ...]) -> str:
    digest = hashlib.sha256()
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def hash_option_files(*specs: str) -> tuple[str, ...]:
    """Hash of every file that an option of an attack or a defence names, such as prior=faces.safetensors."""
    options = [parse_spec(part)[1] for spec in specs for part in split_chain(spec)]
    named = [value for found in options for _, value in sorted(found.items()) if isinstance(value, str)]
    return tuple(hash_file(value) for value in named if _is_file(value))


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False
