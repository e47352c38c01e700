"""Measured models of the calibration of `leakscope inspect`, one line each.

They are kept in the tree, so that fitting needs no measuring and a later session continues where one stopped.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from leakscope import inspection
from leakscope.files import write_atomic

KEPT = Path(__file__).resolve().parent / "results" / "inspection-rows.jsonl.gz"
# Figures are compared with limits of four digits.
_DIGITS = 6


@cache
def detectors_hash() -> str:
    """What a row depends on besides its model: the source of the detectors."""
    files = sorted(Path(inspection.__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


@dataclass(frozen=True)
class Row:
    """One measured model."""

    run: str
    name: str
    is_crafted: bool
    strength: str
    figures: dict[str, dict[str, float]]
    seconds: float
    detectors: str = field(default_factory=detectors_hash)

    @property
    def is_held_out(self) -> bool:
        """Half of the trainings, by a hash of their name; published networks, which have been seen before, never."""
        return "-published/" not in self.run and hashlib.sha256(self.run.encode()).digest()[0] % 2 == 1

    @property
    def generation(self) -> int:
        """Which generation of trainings it is of, by the thousands of its seed."""
        return int(self.run.rpartition("/")[2]) // 1000

    @property
    def key(self) -> str:
        """What a continued run leaves out."""
        return f"{self.run}|{self.name}|{self.strength}"

    def __str__(self) -> str:
        return json.dumps(vars(self), separators=(",", ":"))


def round_figures(figures: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """To the digits that are kept."""
    return {
        detector: {figure: float(f"{value:.{_DIGITS}g}") for figure, value in several.items()}
        for detector, several in figures.items()
    }


def read(*paths: Path) -> list[Row]:
    """What was measured before, later files last; a last line that was cut off is measured again."""
    rows: dict[str, Row] = {}
    for path in paths:
        text = _text(path)
        for line in text[: text.rfind("\n") + 1].splitlines():
            row = Row(**json.loads(line))
            rows[row.key] = row
    return list(rows.values())


def keep(rows: Iterable[Row], path: Path = KEPT) -> None:
    """Store rows in the tree; the same rows give the same bytes."""
    text = "".join(f"{row}\n" for row in rows)
    write_atomic(path, gzip.compress(text.encode(), 9, mtime=0))


def _text(path: Path) -> str:
    if not path.exists():
        return ""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
