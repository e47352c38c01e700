"""What a worker writes of a finished attack, and the baseline that cells of one attack share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from leakscope.audits.nulls import PRIOR
from leakscope.audits.specs import NONE, AttackCellSpec
from leakscope.metrics import summarise
from leakscope.report.grades import find_worst
from leakscope.report.schema import AttackFindings, CellRecord, FitRecord, MetricStats, OpenedFindings
from leakscope.types import AuditResult, Fit, Scores

_HISTORY_POINTS = 120
# Of these a high value means that more was given away; of all others a low one.
_HIGHER_IS_WORSE = ("psnr", "ssim", "label_correct", "columns_recovered")
_HIGHER_IS_WORSE += ("token_recall", "token_precision", "target_recall")
# What cells must have in common for the same attack to reach the same without their update.
_ALIKE = ("subject", "attack", "scenario", "seed", "victims", "batch_size", "local", "rounds", "limit")


def attack_findings(result: AuditResult, *, paper: str) -> AttackFindings:
    """Every number of a cell; the same spec gives the same bytes."""
    columns = {} if result.scores is None else _columns(result.scores)
    if result.baseline_psnr is not None:
        columns["baseline_psnr"] = result.baseline_psnr
    trained = {} if result.trained_scores is None else _columns(result.trained_scores)
    lists = {name: column.tolist() for name, column in columns.items()}
    worst = find_worst(lists.get("psnr", []), ssim=lists.get("ssim"), baseline=lists.get("baseline_psnr"))
    return AttackFindings(
        attack_paper=paper,
        n=0 if result.scores is None else len(result.scores),
        scores={name: _values(column) for name, column in columns.items()},
        trained_scores={name: _values(column) for name, column in trained.items()},
        stats={name: _stats(name, column, worst=worst) for name, column in columns.items() if _is_summable(column)},
        loss=number(result.loss),
        history=thin(result.history),
        evaluations=result.evaluations,
        notes=list(result.notes),
        server=result.server,
        rounds=result.rounds,
        fits=[FitRecord.model_validate(_finite_fit(fit)) for fit in result.fits],
        baselines={name: [number(value) for value in column.tolist()] for name, column in result.baselines.items()},
        worst=worst,
        opened=[_opened(one) for one in result.also if one.viewer],
    )


def _opened(result: AuditResult) -> OpenedFindings:
    columns = {} if result.scores is None else _columns(result.scores)
    if result.baseline_psnr is not None:
        columns["baseline_psnr"] = result.baseline_psnr
    scores = {name: _values(column) for name, column in columns.items()}
    return OpenedFindings(viewer=result.viewer, status=str(result.status), scores=scores, notes=list(result.notes))


def _finite_fit(fit: Fit) -> dict[str, Any]:
    return {name: number(value) if isinstance(value, float) else value for name, value in asdict(fit).items()}


def _columns(scores: Scores) -> dict[str, Tensor]:
    """One value per example for every metric that was computed."""
    return {**scores.metrics, "label_correct": scores.label_correct}


def _values(column: Tensor) -> list[float | bool | None]:
    return [value if isinstance(value, bool) else number(value) for value in column.tolist()]


def _is_summable(column: Tensor) -> bool:
    return column.is_floating_point() and bool(torch.isfinite(column).all())


def _stats(name: str, column: Tensor, *, worst: int | None) -> MetricStats:
    found = summarise(column, higher_is_worse=name in _HIGHER_IS_WORSE)
    quantiles = {f"q{percent:02d}": value for percent, value in found.quantiles.items()}
    low, high = found.ci
    # Of the one worst example, not of whichever is worst by this metric alone.
    value = found.worst if worst is None else float(column[worst])
    return MetricStats.model_validate(
        {"median": found.median, "worst": value, "mean": found.mean, "n": found.n, **quantiles}
        | {"ci_low": low, "ci_high": high}
    )


def borrow_priors(cells: Sequence[AttackCellSpec], records: Sequence[CellRecord]) -> list[CellRecord]:
    """The records with what the attack's prior gives, where the same attack without a defence has measured it."""
    lenders = {
        _what_is_alike(cell): record.baselines[PRIOR]
        for cell, record in zip(cells, records, strict=True)
        if cell.defence == NONE and PRIOR in record.baselines
    }
    return [
        record if cell.prior_alone else _lend(record, lenders.get(_what_is_alike(cell)))
        for cell, record in zip(cells, records, strict=True)
    ]


def _what_is_alike(cell: AttackCellSpec) -> str:
    return cell.model_dump_json(include=set(_ALIKE))


def _lend(record: CellRecord, prior: list[float | None] | None) -> CellRecord:
    """The record with one baseline more, and all that follows from it."""
    best = record.column("baseline_psnr")
    if prior is None or not best or len(prior) != len(best):
        return record
    raised = [max((v for v in pair if v is not None), default=None) for pair in zip(best, prior, strict=True)]
    scores = {**record.scores, "baseline_psnr": raised}
    lists = {name: [math.nan if v is None else float(v) for v in values] for name, values in scores.items()}
    worst = find_worst(lists["psnr"], ssim=lists.get("ssim"), baseline=lists["baseline_psnr"])
    columns = {name: torch.tensor(lists[name], dtype=torch.float64) for name in record.stats if name in lists}
    stats = {name: _stats(name, column, worst=worst) for name, column in columns.items() if _is_summable(column)}
    told = {"scores": scores, "baselines": {**record.baselines, PRIOR: prior}, "worst": worst, "stats": stats}
    return record.model_copy(update=told)


def number(value: float) -> float | None:
    """A finite float, or None: JSON has no NaN."""
    return float(value) if math.isfinite(value) else None


def thin(history: tuple[float, ...]) -> list[float | None]:
    """At most a page-width of points, the first and last included."""
    if len(history) <= _HISTORY_POINTS:
        return [number(value) for value in history]
    places = torch.linspace(0, len(history) - 1, _HISTORY_POINTS).round().long().tolist()
    return [number(history[place]) for place in places]
