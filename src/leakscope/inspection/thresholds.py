"""The limits stored with the package, fitted on honest and crafted models by `benchmarks/inspection_bag.py`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("thresholds.json")


@cache
def calibration() -> dict[str, Any]:
    """All of the stored file: the limits, the models they were fitted on, and the rates on those held out."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def stored_limits(detector: str) -> dict[str, float]:
    """Limit by figure of one detector."""
    found = calibration()["limits"].get(detector, {})
    return {figure: float(entry["limit"]) for figure, entry in found.items()}
