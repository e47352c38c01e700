"""What a cell costs besides its own work, on processes and on Ray in one run; and a large run on paper.

    python benchmarks/runner_overhead.py
    python benchmarks/runner_overhead.py --times runs/first-audit --nodes 100 --workers-per-node 4

Cells do nothing, so that all that is left is the runner's: the message, the worker's bookkeeping, the file, the two
records in the journal. Both kinds of workers take turns, one worker each. `storing` is the part that no worker has a
share in: writing the same file and records without any.

On paper: cells of the lengths that the journal of `--times` names, drawn with a seed, are given to workers as they
become free, by one process that spends on each the whole overhead measured here. That process does one thing at a time,
which bounds how many workers it can keep busy.
"""

from __future__ import annotations

import argparse
import heapq
import importlib
import json
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leakscope.runner import Cell, CellOutcome, Event, EventKind, read_cells, run, store
from leakscope.runner.ledger import FinishedCell, open_ledger
from leakscope.types import Status

PLACES = ("processes", "ray")


def execute(spec: Mapping[str, Any]) -> CellOutcome:
    """Do nothing, well."""
    return CellOutcome(Status.OK, {"seed": spec["seed"]})


def grid(count: int) -> list[Cell]:
    """So many cells that do nothing."""
    return [Cell.of({"seed": number}, code_version="overhead") for number in range(count)]


def time_cells(on: str, folder: Path, *, cells: int) -> tuple[float, float]:
    """Seconds until the first cell is done, and seconds for each of the others."""
    ends: list[float] = []

    def listen(event: Event) -> None:
        if event.kind is EventKind.FINISH:
            ends.append(time.monotonic())

    # By the name under which other processes find it.
    named = importlib.import_module("runner_overhead").execute
    began = time.monotonic()
    found = run(grid(cells), named, folder, on=on, on_event=listen)
    if any(outcome.status is not Status.OK for outcome in found.finished) or len(ends) != cells:
        raise SystemExit(f"a cell that does nothing failed on {on}")
    return ends[0] - began, (ends[-1] - ends[0]) / (cells - 1)


def time_storing(folder: Path, *, cells: int) -> float:
    """Seconds to write the file and the records of one cell."""
    with open_ledger(folder) as ledger:
        began = time.monotonic()
        for cell in grid(cells):
            data = store.pack(cell, execute(cell.spec))
            ledger.begin(cell, attempt=1)
            ledger.commit(cell, data, FinishedCell(store.digest(data), Status.OK, 0.0, 0.0))
        return (time.monotonic() - began) / cells


def measure(folder: Path, *, cells: int, rounds: int) -> dict[str, Any]:
    """Medians over rounds in which both kinds of workers take turns; the first of each round alternates."""
    found: dict[str, list[tuple[float, float]]] = {place: [] for place in PLACES}
    storing = []
    for number in range(rounds):
        for place in PLACES[:: 1 if number % 2 == 0 else -1]:
            found[place].append(time_cells(place, folder / f"{place}-{number}", cells=cells))
        storing.append(time_storing(folder / f"storing-{number}", cells=cells))
    starts = {place: statistics.median(start for start, _ in times) for place, times in found.items()}
    each = {place: [seconds for _, seconds in times] for place, times in found.items()}
    ratios = [ray / process for ray, process in zip(each["ray"], each["processes"], strict=True)]
    return {
        "cells": cells,
        "rounds": rounds,
        "first_cell_s": {place: round(seconds, 2) for place, seconds in starts.items()},
        "per_cell_ms": {
            "storing": round(1e3 * statistics.median(storing), 2),
            **{place: round(1e3 * statistics.median(times), 2) for place, times in each.items()},
        },
        "ray_over_processes": round(statistics.median(ratios), 2),
        "ray_over_processes_range": [round(min(ratios), 2), round(max(ratios), 2)],
    }


def schedule(times: Sequence[float], *, workers: int, each: float, start: float) -> float:
    """Seconds until the last cell ends: who is free gets the next one, from one process that does one thing at a time.

    Example:
        >>> schedule([2.0, 2.0, 2.0, 2.0], workers=2, each=0.0, start=1.0)
        5.0
    """
    free = [start] * workers
    heapq.heapify(free)
    hand = end = start
    for seconds in times:
        hand = max(hand, heapq.heappop(free)) + each
        heapq.heappush(free, hand + seconds)
        end = max(end, hand + seconds)
    return end


def project(times: Sequence[float], measured: Mapping[str, Any], told: argparse.Namespace) -> dict[str, Any]:
    """A run of so many cells on so many nodes, on paper."""
    rng = random.Random(told.seed)
    drawn = rng.choices(times, k=told.paper_cells)
    each, start = measured["per_cell_ms"]["ray"] / 1e3, measured["first_cell_s"]["ray"]
    workers = told.nodes * told.workers_per_node
    wall = schedule(drawn, workers=workers, each=each, start=start)
    return {
        "cells": told.paper_cells,
        "nodes": told.nodes,
        "workers": workers,
        "cell_s": {
            "samples": len(times),
            "median": round(statistics.median(times), 2),
            "mean": round(statistics.fmean(times), 2),
            "longest": round(max(times), 2),
        },
        "one_worker_h": round(sum(drawn) / 3600, 2),
        "wall_min": round(wall / 60, 2),
        "busy_share": round(sum(drawn) / (workers * wall), 3),
        "most_workers_kept_busy": int(statistics.fmean(times) / each),
    }


def main() -> int:
    """Parse the command line and print the figures."""
    parser = argparse.ArgumentParser(description="Measure what a cell costs besides its work.")
    parser.add_argument("--cells", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--times", type=Path, default=None, help="run folder whose cells tell how long cells take")
    parser.add_argument("--paper-cells", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--workers-per-node", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), cells=told.cells, rounds=told.rounds)
    if told.times is not None:
        times = [outcome.seconds for _, outcome in read_cells(told.times) if outcome.status is Status.OK]
        found["on_paper"] = project(times, found, told)
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
