"""From a run's directory to its report."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from leakscope.errors import BadInputError
from leakscope.files import write_atomic
from leakscope.report.render import render

# Keys become file names; anything but hex could point outside the run's directory.
_KEY = re.compile(r"[0-9a-f]{1,128}")


def write_report(directory: str | Path, *, show_images: bool = False) -> Path:
    """Render `directory`/summary.json as `directory`/report.html and return its path.

    The page replaces an older one in a single step: a reader never sees half of it.

    Args:
        directory: a run's directory.
        show_images: also read `cells/<key>.safetensors` and show the private images.

    Raises:
        BadInputError: when the summary or an image file is missing or does not fit.
        StorageError: when the page cannot be written.
    """
    folder = Path(directory)
    summary = _read_summary(folder / "summary.json")
    page = render(summary, CellImages(folder / "cells") if show_images else None, show_images=show_images)
    return write_atomic(folder / "report.html", page.encode("utf-8"))


class CellImages(Mapping[str, tuple[Tensor, Tensor]]):
    """The image pairs of a run, read one cell at a time."""

    def __init__(self, folder: Path) -> None:
        """Look for `<key>.safetensors` in `folder`."""
        self._folder = folder
        # Neighbouring examples often belong to one cell; memory holds no more than that.
        self._last: tuple[str, tuple[Tensor, Tensor]] | None = None

    def __getitem__(self, key: str) -> tuple[Tensor, Tensor]:
        if self._last is None or self._last[0] != key:
            path = self._path(key)
            pair = _read_pair(path) if path.is_file() else None
            # Not every run keeps images: a cell without them is simply not in this mapping.
            if pair is None:
                raise KeyError(key)
            self._last = key, pair
        return self._last[1]

    def __iter__(self) -> Iterator[str]:
        return (path.stem for path in sorted(self._folder.glob("*.safetensors")) if _KEY.fullmatch(path.stem))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise BadInputError(f"a cell key must be lower-case hex, got {key[:80]!r}; the summary was edited")
        path = self._folder / f"{key}.safetensors"
        if path.is_symlink():
            raise BadInputError(f"{path} is a symbolic link; expected a file of this run, remove the link")
        return path


def _read_summary(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise BadInputError(f"no summary at {path}; expected a run's directory, made by `leakscope audit --out …`")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path} is not JSON: {error}; run the audit again to write it anew") from error
    if not isinstance(content, dict):
        raise BadInputError(f"{path} must hold one JSON object, got {type(content).__name__}")
    return content


def _read_pair(path: Path) -> tuple[Tensor, Tensor] | None:
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise BadInputError(f"{path} is not a readable safetensors file: {error}; delete it and resume") from error
    missing = {"truth", "reconstruction"} - tensors.keys()
    if len(missing) == 1:
        raise BadInputError(
            f"{path} lacks {missing.pop()}; it holds {', '.join(sorted(tensors))}; delete it and resume"
        )
    return None if missing else (tensors["truth"], tensors["reconstruction"])
