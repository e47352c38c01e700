"""What the template shows, worked out beforehand: the template only lays it out."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from leakscope.report.dpia import DISCLAIMER, draft_dpia
from leakscope.report.evidence import (
    NO_DEFENCE,
    DefenceEvidence,
    Example,
    Group,
    by_defence,
    examples_of,
    group,
    is_evidence,
)
from leakscope.report.figures import convergence, success
from leakscope.report.glossary import GLOSSARY
from leakscope.report.grades import ASSUMED_BASELINE_DB, GRADES, NO_GAIN_DB
from leakscope.report.matrix import lay_out, matrices
from leakscope.report.nouns import is_picture, noun_of, reword
from leakscope.report.remedies import advise
from leakscope.report.schema import CellRecord, FitRecord, Summary
from leakscope.report.tradeoff import tradeoffs
from leakscope.report.verdict import verdict
from leakscope.report.words import decibel

MOST_ROWS = 1_000
_MOST_CONFIG = 60_000
_MOST_DIAGNOSES = 20
_MOST_GAUGES = 60


@dataclass(frozen=True)
class CellRow:
    """One line of the table of all cells."""

    cell: CellRecord
    group: Group
    seconds: float | None
    labels: float | None
    fit: FitRecord | None

    @property
    def explained(self) -> float | None:
        """Share of the update that the result explains, of the update that is explained least."""
        return self.fit.explained if self.fit else None

    @property
    def unrelated(self) -> float | None:
        """What an unrelated example explains of that update."""
        return self.fit.unrelated if self.fit else None

    @property
    def diagnosis(self) -> str:
        """A description that explains the update better than the declared one."""
        return next((fit.diagnosis for fit in self.cell.fits if fit.diagnosis), "")


@dataclass(frozen=True)
class KeyNumber:
    """One figure of the first screen."""

    value: str
    name: str
    detail: str


def page_context(summary: Summary) -> dict[str, Any]:
    """All values of the page except the gallery."""
    cells, costs = summary.cells, summary.defences
    defences = by_defence(cells, costs)
    undefended = group([cell for cell in cells if cell.defence == NO_DEFENCE] or cells)
    layout = lay_out(matrices(cells, costs))
    rows = cell_rows(summary)
    judged = summary.verdict or verdict(cells, summary.threshold_psnr, defences=costs, self_check=summary.self_check)
    advice, noun = advise(summary), noun_of(cells)
    failed = [cell for cell in cells if not is_evidence(cell)]
    return {
        "summary": summary,
        "verdict": judged,
        "advice": advice,
        "dpia": draft_dpia(summary, judged, advice),
        "disclaimer": DISCLAIMER,
        "noun": noun,
        "has_pictures": any(map(is_picture, cells)),
        "defences": sorted(defences, key=lambda row: row.name != NO_DEFENCE)[:_MOST_GAUGES],
        "defences_left_out": max(0, len(defences) - _MOST_GAUGES),
        "key_numbers": key_numbers(summary, undefended, defences),
        "matrices": layout.matrices,
        "lines": layout.lines,
        "lines_left_out": layout.left_out,
        "settings": layout.settings,
        "rows": rows[:MOST_ROWS],
        "rows_left_out": max(0, len(rows) - MOST_ROWS),
        "failed": failed[:MOST_ROWS],
        "failed_statuses": list(dict.fromkeys("no score" if cell.status == "ok" else cell.status for cell in failed)),
        "diagnoses": diagnoses(rows),
        "convergence": convergence(cells),
        "success": success(cells, summary.threshold_psnr),
        "tradeoffs": tradeoffs(cells, costs, summary.threshold_psnr),
        "config": _clip(json.dumps(summary.config, indent=2, ensure_ascii=False, default=str)),
        "papers": _papers(summary),
        "grades": [(grade, reword(grade.meaning, noun)) for grade in GRADES],
        "no_gain_db": NO_GAIN_DB,
        "assumed_baseline_db": ASSUMED_BASELINE_DB,
        "glossary": GLOSSARY,
    }


def key_numbers(summary: Summary, undefended: Group, defences: Sequence[DefenceEvidence]) -> list[KeyNumber]:
    """The figures beside the verdict."""
    worst = undefended.worst
    nulls = [example.baseline for example in undefended.evidence if example.baseline is not None]
    above, total = undefended.exposed(summary.threshold_psnr)
    everything = group(summary.cells)
    ssim = "" if worst is None or worst.ssim is None else f"SSIM {worst.ssim:.2f}, "
    noun = noun_of(summary.cells)
    found = [
        KeyNumber(decibel(worst.psnr if worst else None), f"worst {noun}", f"{ssim}no defence"),
        KeyNumber(decibel(worst.gain if worst else None), "its gain", reword(_best_null(worst), noun)),
        KeyNumber(
            decibel(undefended.median_psnr),
            f"typical {noun}",
            f"median, no defence; best null {decibel(median(nulls) if nulls else None)}",
        ),
        KeyNumber(
            f"{above} of {total}", "above the gate", f"private examples, {summary.threshold_psnr:g} dB, no defence"
        ),
        KeyNumber(f"{everything.ok} of {everything.attackable}", "attacks usable", "95 % needed for a verdict"),
    ]
    if all(row.name != NO_DEFENCE for row in defences):
        found = [KeyNumber(item.value, item.name, item.detail.replace("no defence", "defended")) for item in found]
    if summary.self_check is not None:
        passed = "passed" if summary.self_check.passed else "failed"
        found.append(KeyNumber(passed, "self-check", f"planted image at {decibel(summary.self_check.psnr)}"))
    return found


def _best_null(worst: Example | None) -> str:
    if worst is None or worst.baseline is None:
        return "no null baseline was measured"
    return f"over {decibel(worst.baseline)}, the best null: {worst.best_null}"


def cell_rows(summary: Summary) -> list[CellRow]:
    """All cells, worst first, those without a result last."""
    rows = []
    for cell in summary.cells:
        labels = [bool(flag) for flag in cell.column("label_correct") if flag is not None]
        right = sum(labels) / len(labels) if labels and cell.status == "ok" else None
        rows.append(CellRow(cell, group([cell]), summary.timings.get(cell.key), right, _weakest(cell)))
    return sorted(rows, key=_row_badness, reverse=True)


def _weakest(cell: CellRecord) -> FitRecord | None:
    known = [(fit.explained, fit) for fit in cell.fits if fit.explained is not None]
    return min(known, key=lambda pair: pair[0])[1] if known else None


def diagnoses(rows: Sequence[CellRow]) -> list[tuple[str, str]]:
    """Each different diagnosis with the cells it is about."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.diagnosis:
            found.setdefault(row.diagnosis, []).append(f"{row.cell.attack} on {row.cell.data}")
    named = [(list(dict.fromkeys(names)), line) for line, names in found.items()]
    return [
        (", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else ""), line)
        for names, line in named[:_MOST_DIAGNOSES]
    ]


def data_block(summary: Summary, *, limit: int) -> str | None:
    """The numbers behind the page as JSON that is inert inside a script element.

    Histories are left out; None when the rest exceeds `limit` characters.
    """
    # No cell takes less than 300 characters: do not write out what cannot fit.
    if 300 * len(summary.cells) > limit:
        return None
    content = summary.model_dump(by_alias=True, exclude={"cells": {"__all__": {"history"}}})
    text = json.dumps(_plain(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if len(text) > limit:
        return None
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def all_examples(summary: Summary) -> list[Any]:
    """Every scored example of the run."""
    return [example for cell in summary.cells for example in examples_of(cell)]


def _row_badness(row: CellRow) -> tuple[int, float, float, float]:
    worst = row.group.worst
    return worst.badness if worst else (-1, 0.0, 0.0, 0.0)


def _papers(summary: Summary) -> list[tuple[str, str]]:
    named = [(cell.attack, cell.attack_paper) for cell in summary.cells if cell.attack_paper]
    named += [(cost.name, cost.paper) for cost in summary.defences if cost.paper]
    return list(dict.fromkeys(named))[:100]


def _clip(text: str) -> str:
    return text if len(text) <= _MOST_CONFIG else text[:_MOST_CONFIG] + "\n… (continues in summary.json)"


def _plain(value: Any) -> Any:
    """Replace what JSON cannot hold: an infinite PSNR becomes text, NaN becomes null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if isinstance(value, str | int | float | None) else str(value)
