"""One audit of very many trivial cells: seconds, memory, and the size of what it writes.

    python benchmarks/many_cells.py --cells 10000

Every cell is a whole one, with its own file and its two records in the journal; only its attack is a closed form on a
network of a few neurons. The page must stay below its limit whatever the number of cells.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from leakscope.audits import make_plan, parse_config, run_campaign
from leakscope.report.render import MAX_BYTES


def grid(cells: int, workers: int) -> dict[str, Any]:
    """Settings with one cell per seed."""
    return {
        "title": f"{cells} trivial cells",
        "model_options": {"mlp": {"hidden": [2]}},
        "attacks": ["fc-inversion"],
        "victims": 1,
        "seeds": list(range(cells)),
        "utility": None,
        "workers": workers,
        "show_images": False,
    }


def measure(folder: Path, *, cells: int, workers: int) -> dict[str, Any]:
    """Plan, run and continue the audit; seconds of each, peak memory of this process, and sizes in bytes."""
    config = parse_config(grid(cells, workers))
    began = time.monotonic()
    make_plan(config)
    planned = time.monotonic()
    found = run_campaign(config, folder, quiet=True)
    ended = time.monotonic()
    again = run_campaign(config, folder, quiet=True)
    return {
        "cells": cells,
        "workers": workers,
        "finished": len(found.summary.cells) - found.missing,
        "executed": found.sweep.executed,
        "executed_again": again.sweep.executed,
        "seconds_plan": round(planned - began, 1),
        "seconds_run": round(ended - planned, 1),
        "seconds_continue": round(time.monotonic() - ended, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "journal_bytes": (folder / "journal.jsonl").stat().st_size,
        "summary_bytes": (folder / "summary.json").stat().st_size,
        "page_bytes": (folder / "report.html").stat().st_size,
        "page_limit": MAX_BYTES,
    }


def main() -> int:
    """Parse the command line; 0 when all cells were run once and the page is within its limit."""
    parser = argparse.ArgumentParser(description="Run very many trivial cells and measure the run.")
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder) / "run", cells=options.cells, workers=options.workers)
    print(json.dumps(found, indent=2))
    whole = found["finished"] == found["executed"] == options.cells and not found["executed_again"]
    return 0 if whole and found["page_bytes"] <= MAX_BYTES else 1


if __name__ == "__main__":
    raise SystemExit(main())
