"""Calibrate `leakscope inspect`: measure honest and crafted models, fit limits on one half, print rates on the other.

    python benchmarks/inspection_bag.py                # measure what is missing, fit, write limits, rows and page
    python benchmarks/inspection_bag.py --minutes 40   # the same, with no training begun after that time
    python benchmarks/inspection_bag.py --fit-only     # limits and rates from what was measured
    python benchmarks/inspection_bag.py --stored 3     # rates of generation 3 under the limits as they are stored
    python benchmarks/inspection_bag.py --most 4       # a try on a few runs, nothing stored

Figures of every model go to runs/inspection-bag/rows.jsonl as soon as they are there, and in the end to
benchmarks/results/inspection-rows.jsonl.gz: a stopped run continues, also in another clone. The half of a model follows
from a hash of its training's name, fixed before anything is measured; checkpoints of one training, and what was crafted
of them, are in the same half.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from inspection_rows import KEPT, Row, detectors_hash, keep, read, round_figures

import inspection_crafted
import inspection_honest
import inspection_table
from leakscope.files import write_atomic
from leakscope.inspection import DETECTORS, Inspection, calibration, examine
from leakscope.inspection.finding import LARGEST
from leakscope.inspection.thresholds import FILE
from leakscope.metrics import exact_interval
from leakscope.version import __version__

FOLDER = Path("runs/inspection-bag")
# Limits that follow from what is meant, and are not fitted.
FIXED = {
    ("architecture", "differences"): 0.0,
    ("same-for-all", "other_fingerprints"): 0.0,
    ("fully-connected", "before_convolution"): 0.0,
    ("fully-connected", "width"): 1.5,
    # Shown beside published values, and no sign by itself.
    ("gradient-dominance", "d_snr"): LARGEST,
}
# What needs nothing but the weights, and what needs the client's own examples; the others need something agreed.
BY_WEIGHTS = {"zeros", "copy-kernels", "row-pairs", "imprint", "balanced-rows", "head"}
BY_EXAMPLES = {"firing-rates", "gradient-dominance"}
# Of a share (from 0 to 1) a limit goes this part of the way from the largest honest value to 1; of any other figure
# it is this multiple of it.
SHARES = {"share", "empty_lines", "equal_columns", "staircase", "rare", "silent", "same_balance"}
ROOM, FACTOR = 0.3, 1.5
# A value below this is nothing, whatever the honest models had: theory or a first try on other models says so.
LEAST = {"share": 0.5, "empty_lines": 0.3, "equal_columns": 0.3, "staircase": 0.9, "rare": 0.4, "silent": 0.98}
LEAST |= {"paired_rows": 3.0, "equal_rows": 3.0, "same_balance": 0.4, "transmit_snr": 1.0, "peak": 12.0}
LEAST |= {"row_ratio": 5.0, "bias_spread": 5.0, "jump": 10.0, "loss_rise": 6.0, "per_error": 8.0}


def largest(found: Inspection) -> dict[str, dict[str, float]]:
    """The largest value of every figure."""
    figures: dict[str, dict[str, float]] = {}
    for detector, several in found.measured.items():
        for one in several:
            kept = figures.setdefault(detector, {})
            kept[one.figure] = max(kept.get(one.figure, -math.inf), one.value)
    return round_figures(figures)


def measure(runs: Iterable[inspection_honest.Run], done: set[str], *, minutes: float) -> Iterator[Row]:
    """Every checkpoint and every crafted model that is not there yet; no training begins after so many minutes."""
    end = time.monotonic() + 60 * minutes
    for run in runs:
        if f"{run.name}|done|" in done:
            continue
        if time.monotonic() > end:
            return
        last = None
        for one in inspection_honest.checkpoints(run):
            last = one if one.name.startswith("step") else last
            began = time.perf_counter()
            reference = None if one.name == "key-locked" else inspection_honest.start(run)
            found = examine(one.model, reference=reference, batch=one.batch, previous=one.previous, pruned=one.pruned)
            yield Row(run.name, one.name, False, "", largest(found), time.perf_counter() - began)
        # Of a third of the trainings, at their end or at their start.
        dice = hashlib.sha256(f"craft {run.name}".encode()).digest()
        if last is not None and dice[0] % 3 == 0:
            agreed = last.model if dice[1] % 2 else inspection_honest.start(run)
            for crafted in inspection_crafted.craft_all(agreed, last.batch, seed=run.seed):
                began = time.perf_counter()
                found = examine(crafted.model, reference=agreed, batch=crafted.batch, previous=agreed)
                yield Row(run.name, crafted.name, True, crafted.strength, largest(found), time.perf_counter() - began)
        yield Row(run.name, "done", False, "", {}, 0.0)


def fit(rows: list[Row]) -> dict[str, dict[str, Any]]:
    """Limit by detector and figure, above every honest value of the fitted half."""
    honest: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if not row.is_crafted and not row.is_held_out:
            for detector, figures in row.figures.items():
                for figure, value in figures.items():
                    honest[detector, figure].append(value)
    limits: dict[str, dict[str, Any]] = {}
    for key, values in sorted(honest.items()):
        detector, figure = key
        if figure not in LEAST and key not in FIXED:
            # Measured by an older version.
            continue
        top = max(values)
        fitted = top + ROOM * (1 - top) if figure in SHARES else FACTOR * top
        limit = FIXED.get(key, max(LEAST.get(figure, 0.0), fitted))
        entry = {"limit": round(limit, 4), "honest_largest": round(top, 4), "honest_models": len(values)}
        limits.setdefault(detector, {})[figure] = entry
    for (detector, figure), limit in FIXED.items():
        limits.setdefault(detector, {}).setdefault(figure, {"limit": limit})
    return limits


def exceeded(row: Row, limits: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Figures over their limits, of those above 1."""
    return {name: value for name, value in _ratios(row, limits).items() if value > 1}


def _ratios(row: Row, limits: dict[str, dict[str, Any]]) -> dict[str, float]:
    found = {}
    for detector, figures in row.figures.items():
        for figure, value in figures.items():
            if figure not in limits[detector]:
                continue
            limit = limits[detector][figure]["limit"]
            found[f"{detector}.{figure}"] = value / limit if limit > 0 else (1e6 if value > 0 else 0.0)
    return found


def rates(rows: list[Row], limits: dict[str, dict[str, Any]], *, is_fitted: bool = True) -> dict[str, Any]:
    """False alarms, detections by construction, and the curve: of the held-out half, or of all if none was fitted."""
    held = [row for row in rows if (row.is_held_out or not is_fitted) and row.figures]
    honest, crafted = ([row for row in held if row.is_crafted is which] for which in (False, True))
    alarms = [row for row in honest if exceeded(row, limits)]
    by_name: dict[str, list[set[str]]] = defaultdict(list)
    for row in crafted:
        by_name[row.name].append({name.partition(".")[0] for name in exceeded(row, limits)})
    found = sum(bool(one) for several in by_name.values() for one in several)
    suspicion = [[max(_ratios(row, limits).values(), default=0.0) for row in part] for part in (honest, crafted)]
    return {
        "honest": len(honest),
        "false_alarms": len(alarms),
        "false_alarm_interval": _interval(len(alarms), len(honest)),
        "crafted": len(crafted),
        "detected": found,
        "detection_interval": _interval(found, len(crafted)),
        "constructions": {name: _by_means(several) for name, several in sorted(by_name.items())},
        # Without a rate, until the bag is complete.
        "only_fitted": sorted({row.name for row in rows if row.is_crafted} - set(by_name)),
        "area_under_curve": round(_area(*suspicion), 5),
        "curve": _curve(*suspicion),
        "alarms": {row.key: sorted(exceeded(row, limits)) for row in alarms},
        "missed": sorted(row.key for row in crafted if not exceeded(row, limits)),
    }


def _by_means(several: list[set[str]]) -> dict[str, int]:
    """How many of one construction were found, and how many of them by the weights alone, or with own examples."""
    return {
        "models": len(several),
        "detected": sum(bool(one) for one in several),
        "by_weights_alone": sum(bool(one & BY_WEIGHTS) for one in several),
        "by_weights_and_examples": sum(bool(one & (BY_WEIGHTS | BY_EXAMPLES)) for one in several),
    }


def _interval(count: int, total: int) -> list[float]:
    return [round(value, 4) for value in exact_interval(count, total)] if total else []


def _curve(honest: list[float], crafted: list[float]) -> list[list[float]]:
    """(factor on all limits, false alarms, detections)."""
    return [
        [factor, *(round(sum(value > factor for value in part) / max(1, len(part)), 4) for part in (honest, crafted))]
        for factor in (0.1, 0.25, 0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0, 5.0, 10.0, 100.0)
    ]


def _area(honest: list[float], crafted: list[float]) -> float:
    wins = sum((one > other) + 0.5 * (one == other) for one in crafted for other in honest)
    return wins / max(1, len(honest) * len(crafted))


def main() -> None:
    """Measure, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, help="only so many trainings; limits are printed, not stored")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no training after so much time")
    parser.add_argument("--fit-only", action="store_true", help="measure nothing")
    parser.add_argument(
        "--stored", type=int, nargs="+", metavar="GENERATION", help="only rates of these, under the limits as stored"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    torch.set_num_threads(1)
    path = options.folder / "rows.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = read(KEPT, path)
    if options.stored:
        print(json.dumps(judge_stored(rows, set(options.stored)), indent=1))
        return
    if not options.fit_only:
        weights = os.environ.get("LEAKSCOPE_DATA")
        runs = inspection_honest.runs(Path(weights) / "weights" if weights else None)[: options.most]
        with path.open("a") as file:
            for row in measure(runs, {row.key for row in rows}, minutes=options.minutes):
                file.write(f"{row}\n")
                file.flush()
                print(f"{row.key} {row.seconds:.2f} s", flush=True)
        rows = read(KEPT, path)
    if options.most is None:
        keep(rows)
    store(rows, is_stored=options.most is None)


def judge_stored(rows: list[Row], generations: set[int]) -> dict[str, Any]:
    """Rates of generations that the stored limits were not fitted on; published networks are left out."""
    chosen = [row for row in rows if row.generation in generations and "-published/" not in row.run]
    measured = [row for row in chosen if row.name != "done"]
    trainings = len({row.run for row in chosen if row.name == "done"})
    return {"trainings": trainings, **rates(measured, calibration()["limits"], is_fitted=False)}


def store(rows: list[Row], *, is_stored: bool) -> None:
    """Fit, print, and write limits and page."""
    trainings = {row.run for row in rows if row.name == "done"}
    older = sum(row.detectors != detectors_hash() for row in rows)
    rows = [row for row in rows if row.name != "done"]
    limits = fit(rows)
    report = {"held_out": rates(rows, limits), "models": len(rows), "trainings": len(trainings)}
    report |= {"leakscope": __version__}
    print(json.dumps({"limits": limits, **report}, indent=1))
    print(f"figures of {len(DETECTORS)} detectors; {sum(not row.is_crafted for row in rows)} honest models")
    if older:
        print(f"{older} rows were measured by other detectors than these: remove them to measure them again")
    if is_stored:
        write_atomic(FILE, (json.dumps({"limits": limits, **report}, indent=1) + "\n").encode())
        inspection_table.write()


if __name__ == "__main__":
    main()
