"""Makes the workloads importable by name, here and in the worker processes spawned from here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def side_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where executed cells leave their trace; workers inherit the variable."""
    path = tmp_path / "side"
    monkeypatch.setenv("LEAKSCOPE_TEST_SIDE", str(path))
    return path
