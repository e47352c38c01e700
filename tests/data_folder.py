"""Where tests find real data: the folder LEAKSCOPE_DATA names, or ../shared/data beside the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"


def data_root() -> Path | None:
    """Return the data folder, or None where there is none."""
    named = os.environ.get("LEAKSCOPE_DATA")
    folder = Path(named).expanduser() if named else _BESIDE
    return folder if folder.is_dir() else None


def needs(name: str) -> pytest.MarkDecorator:
    """Skip a test unless the data folder holds `name`, for example "cifar10.npz" or "weights"."""
    root = data_root()
    absent = root is None or not (root / name).exists()
    return pytest.mark.skipif(absent, reason=f"needs {name} in the data folder named by LEAKSCOPE_DATA")
