"""The numbers of a run as CSV for spreadsheets: one line per private example, worst cell first."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator

from leakscope.report.evidence import NO_DEFENCE, Example, examples_of
from leakscope.report.schema import CellRecord, Summary
from leakscope.report.words import local_words
from leakscope.results import GUESS, PRIOR, PUBLIC

COLUMNS = (
    "key",
    "model",
    "data",
    "attack",
    "defence",
    "attacker",
    "scenario",
    "seed",
    "batch_size",
    "training",
    "server",
    "rounds",
    "status",
    "example",
    "grade",
    "psnr",
    "ssim",
    "lpips",
    "label_correct",
    "blind_guess_psnr",
    "prior_alone_psnr",
    "nearest_public_psnr",
    "baseline_psnr",
    "best_null",
    "gain",
    "explained",
    "unrelated",
    "diagnosis",
    "error",
)
# What makes a spreadsheet take a text for a formula when the text starts with it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def to_csv(summary: Summary) -> str:
    """One line per example with its figures; a cell without any keeps one line, so that no failure is lost.

    Text that a spreadsheet would run as a formula is preceded by an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for cell in summary.cells:
        for line in _lines(cell):
            writer.writerow([_field(line[name]) for name in COLUMNS])
    return text.getvalue()


def _lines(cell: CellRecord) -> Iterator[dict[str, object]]:
    common: dict[str, object] = dict.fromkeys(COLUMNS) | {
        "key": cell.key,
        "model": cell.model,
        "data": cell.data,
        "attack": cell.attack,
        "defence": cell.defence,
        "attacker": "" if cell.defence == NO_DEFENCE else "knows it" if cell.adaptive else "unaware",
        "scenario": cell.scenario,
        "seed": cell.seed,
        "batch_size": cell.batch_size,
        "training": "one gradient" if cell.local is None else local_words(cell.local),
        "server": cell.server,
        "rounds": cell.rounds,
        "status": cell.status,
        "error": cell.error,
    }
    examples = examples_of(cell)
    if not examples:
        yield common | _fit(cell, 0)
    for example in examples:
        yield common | _figures(example) | _fit(cell, example.index)


def _figures(example: Example) -> dict[str, object]:
    return {
        "example": example.index,
        "grade": example.grade,
        "psnr": example.psnr,
        "ssim": example.ssim,
        "lpips": example.lpips,
        "label_correct": example.label_correct,
        "blind_guess_psnr": example.baselines.get(GUESS),
        "prior_alone_psnr": example.baselines.get(PRIOR),
        "nearest_public_psnr": example.baselines.get(PUBLIC),
        "baseline_psnr": example.baseline,
        "best_null": None if example.baseline is None else example.best_null,
        "gain": example.gain,
    }


def _fit(cell: CellRecord, index: int) -> dict[str, object]:
    """The fit of the update that holds example `index`: updates have `batch_size` examples each."""
    place = index // max(1, cell.batch_size)
    if place >= len(cell.fits):
        return {}
    fit = cell.fits[place]
    return {"explained": fit.explained, "unrelated": fit.unrelated, "diagnosis": fit.diagnosis}


def _field(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "inf" if value == math.inf else f"{value:.6g}"
    text = str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text
