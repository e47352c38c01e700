"""What computes a cell: versions of libraries, and leakscope's own source.

Both are part of a cell's key, so that a result of other software is computed again instead of reused. Source that only
plans, prices, shows or prints a result is left out: a change there computes the same numbers.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

from leakscope.version import __version__

# Everything a cell may compute with; what is not installed is not used.
LIBRARIES = (
    "torch",
    "numpy",
    "scipy",
    "scikit-learn",
    "scikit-image",
    "pillow",
    "safetensors",
    "torchvision",
    "lpips",
    "cma",
    "kornia",
    "opacus",
)
# Folders and files of the package that compute nothing of a cell; all others count, and so does any new one.
NOT_COMPUTING = (
    "cli",
    "report",
    # Cells of recipes name those of its files that compute in their own keys.
    "reproduction",
    "__main__.py",
    "progress.py",
    "testing.py",
    "audits/__init__.py",
    "audits/bill.py",
    "audits/budget.py",
    "audits/config.py",
    "audits/durations.py",
    "audits/price.py",
    "audits/profile.py",
    "audits/run.py",
    "audits/sample_run.py",
    "audits/stale.py",
    "audits/summary.py",
)
# In a folder above, yet every record goes through it.
COMPUTING = ("report/schema.py",)
_PACKAGE = Path(__file__).parent


@cache
def software() -> dict[str, str]:
    """Versions by name, and under `source` the hash of what computes; once per process, as the code is loaded once."""
    found = {"leakscope": __version__, "python": platform.python_version(), "source": hash_source(_PACKAGE)}
    return found | {name: version for name in LIBRARIES if (version := _version(name))}


def hash_source(package: Path) -> str:
    """Hash of the files below `package` that compute, by name and content."""
    digest = hashlib.sha256()
    for path in sorted(_computing(package)):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:32]


def _computing(package: Path) -> Iterator[Path]:
    for path in package.rglob("*"):
        name = path.relative_to(package).as_posix()
        left_out = any(name == part or name.startswith(f"{part}/") for part in NOT_COMPUTING)
        if path.is_file() and "__pycache__" not in path.parts and (not left_out or name in COMPUTING):
            yield path


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
