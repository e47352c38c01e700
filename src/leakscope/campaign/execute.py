"""What a worker process does with one cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from leakscope.campaign.stepped import shortened
from leakscope.campaign.subject import Subject
from leakscope.cell import audit
from leakscope.errors import KnowledgeError, UnsuitableError
from leakscope.federated import measure_utility
from leakscope.metrics import summarise
from leakscope.registry import attack_from_spec, defence_from_spec
from leakscope.sweep import CellOutcome
from leakscope.types import AuditResult, LocalTraining, Status

_HISTORY_POINTS = 120


def execute(spec: Mapping[str, Any]) -> CellOutcome:
    """Run an attack cell or a utility cell; a refusal is an outcome, not an error."""
    try:
        return _attack(spec) if spec["kind"] == "attack" else _utility(spec)
    except (KnowledgeError, UnsuitableError) as refusal:
        return CellOutcome(Status.REFUSED, {"error": str(refusal)})


def _attack(spec: Mapping[str, Any]) -> CellOutcome:
    subject = Subject(dict(spec["subject"]))
    attack = attack_from_spec(spec["attack"])
    result = audit(
        subject.model(),
        subject.victims(victims=spec["victims"], batch_size=spec["batch_size"]),
        attack,
        defence=defence_from_spec(spec["defence"]),
        adaptive=spec["adaptive"],
        local=None if spec["local"] is None else LocalTraining(**spec["local"]),
        scenario=spec["scenario"],
        seed=spec["seed"],
        with_lpips=spec["lpips"],
        limited=partial(shortened, **spec["limit"]) if spec.get("limit") else None,
    )
    tensors: dict[str, Tensor] = {}
    if spec["keep_images"] and result.truth is not None and result.reconstruction is not None:
        tensors = {"truth": result.truth, "reconstruction": result.reconstruction.clamp(0, 1)}
    return CellOutcome(result.status, attack_record(result, paper=attack.paper), tensors, seconds=result.seconds)


def attack_record(result: AuditResult, *, paper: str) -> dict[str, Any]:
    """Every number of a cell, as plain JSON; the same spec gives the same bytes."""
    record: dict[str, Any] = {
        "attack_paper": paper, "n": 0, "scores": {}, "stats": {}, "loss": number(result.loss),
        "history": thinned(result.history), "evaluations": result.evaluations, "notes": list(result.notes),
    }  # fmt: skip
    if result.scores is None or result.baseline_psnr is None:
        return record
    columns: dict[str, Tensor | None] = {
        "psnr": result.scores.psnr, "ssim": result.scores.ssim, "mse": result.scores.mse,
        "lpips": result.scores.lpips, "baseline_psnr": result.baseline_psnr,
    }  # fmt: skip
    record["n"] = len(result.scores)
    record["scores"] = {
        name: None if column is None else [number(value) for value in column.tolist()]
        for name, column in columns.items()
    }
    record["scores"]["label_correct"] = result.scores.label_correct.tolist()
    record["stats"] = {
        name: _stats(column, higher_is_worse=name in ("psnr", "ssim"))
        for name, column in columns.items()
        if column is not None and bool(torch.isfinite(column).all())
    }
    return record


def _stats(column: Tensor, *, higher_is_worse: bool) -> dict[str, float | int]:
    found = summarise(column, higher_is_worse=higher_is_worse)
    quantiles = {f"q{percent:02d}": value for percent, value in found.quantiles.items()}
    return {
        "median": found.median, "worst": found.worst, "mean": found.mean, **quantiles,
        "ci_low": found.ci[0], "ci_high": found.ci[1], "n": found.n,
    }  # fmt: skip


def _utility(spec: Mapping[str, Any]) -> CellOutcome:
    subject = Subject(dict(spec["subject"]))
    defence = defence_from_spec(spec["defence"])
    training = dict(spec["training"])
    train, test = subject.training_data(examples=training.pop("examples"))
    found = measure_utility(subject.model(), train, test, defence=defence, seed=spec["seed"], **training)
    record = {
        "accuracy": found.accuracy, "ci": list(found.interval), "final_loss": number(found.final_loss),
        "nonzero_fraction": found.nonzero_fraction, "diverged": found.diverged, "rounds": found.rounds,
        "paper": "" if defence is None else defence.paper,
    }  # fmt: skip
    return CellOutcome(Status.OK, record, measured={"step_seconds": found.step_seconds})


def number(value: float) -> float | None:
    """A finite float, or None: JSON has no NaN."""
    return float(value) if math.isfinite(value) else None


def thinned(history: tuple[float, ...]) -> list[float | None]:
    """At most a page-width of points, the first and last included."""
    if len(history) <= _HISTORY_POINTS:
        return [number(value) for value in history]
    places = torch.linspace(0, len(history) - 1, _HISTORY_POINTS).round().long().tolist()
    return [number(history[place]) for place in places]
