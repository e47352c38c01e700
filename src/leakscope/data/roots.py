"""Where data may lie on this machine. Nothing is ever downloaded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path

from leakscope.errors import MissingDataError

VARIABLE = "LEAKSCOPE_DATA"


def search_roots(root: str | PathLike[str] | None) -> list[Path]:
    """Return the folders to search: `root` alone when given, else the one LEAKSCOPE_DATA names."""
    if root is not None:
        folder = Path(root).expanduser()
        if not folder.is_dir():
            raise MissingDataError(f"root={str(root)!r} is not a folder; give the folder that holds the data")
        return [folder]
    named = os.environ.get(VARIABLE)
    return [Path(named).expanduser()] if named else []


def candidates(roots: Sequence[Path], below: Sequence[str]) -> Iterator[Path]:
    """Yield every existing root/below, in order; '' in `below` is the root itself."""
    for root in roots:
        for part in below:
            path = root / part
            if path.exists():
                yield path
