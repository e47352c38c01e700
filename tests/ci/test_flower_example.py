"""The Flower app of examples/ runs in the environment that it is started from."""

from __future__ import annotations

import re
from pathlib import Path

APP = Path(__file__).parents[2] / "examples" / "flower-quickstart"


def test_flower_is_not_asked_to_fetch_a_package_called_leakscope() -> None:
    """`flwr run` installs an app's dependencies from the package index, where that name is somebody else's."""
    (named,) = re.findall(
        r"^dependencies = \[(.*?)\]", (APP / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S
    )
    assert "flwr" in named
    assert "leakscope" not in named
    assert "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1" in (APP / "README.md").read_text(encoding="utf-8")
