"""What a worker process does with one cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from leakscope.attack import Attack, Effort
from leakscope.audits.cell import run_cell
from leakscope.audits.specs import AttackCellSpec, TrainingCellSpec, parse_cell_spec
from leakscope.audits.subject import Subject
from leakscope.errors import KnowledgeError, UnsuitableError
from leakscope.federated import measure_utility
from leakscope.metrics import summarise
from leakscope.registry import attack_from_spec, defence_from_spec
from leakscope.report.schema import AttackFindings, MetricStats, PlannedAttack, TrainingFindings
from leakscope.runner import CellOutcome
from leakscope.types import AuditResult, Scores, Status

# Below this an optimiser has hardly left its start: the result would be noise that looks like protection.
FEWEST_STEPS = 20
_HISTORY_POINTS = 120
# Of these a high value means that more was given away; of all others a low one.
_HIGHER_IS_WORSE = ("psnr", "ssim", "label_correct")


def execute(spec: Mapping[str, Any]) -> CellOutcome:
    """Run an attack cell or a training cell; a refusal is an outcome, not an error."""
    parsed = parse_cell_spec(spec)
    try:
        return _attack(parsed) if parsed.kind == "attack" else _training(parsed)
    except (KnowledgeError, UnsuitableError) as refusal:
        return CellOutcome(Status.REFUSED, {"error": str(refusal)})


def _attack(spec: AttackCellSpec) -> CellOutcome:
    subject = Subject(spec.subject)
    attack = attack_from_spec(spec.attack)
    limit = spec.limit
    victims = subject.victims(victims=spec.victims, batch_size=spec.batch_size)
    result = run_cell(
        subject.model(),
        victims,
        attack,
        defence=defence_from_spec(spec.defence),
        adaptive=spec.adaptive,
        local=spec.local,
        scenario=spec.scenario,
        seed=spec.seed,
        rounds=spec.rounds,
        with_lpips=spec.lpips,
        limited=None if limit is None else lambda chosen: shorten(chosen, limit),
    )
    tensors = _pictures(result, victims[0].bounds) if spec.keep_images else {}
    findings = attack_findings(result, paper=attack.paper)
    return CellOutcome(result.status, findings.model_dump(mode="json"), tensors, seconds=result.seconds)


def _pictures(result: AuditResult, bounds: tuple[float, float] | None) -> dict[str, Tensor]:
    """Originals and reconstructions in [0, 1], in which the report draws; nothing where inputs are not pictures."""
    if result.truth is None or result.reconstruction is None or result.truth.ndim != 4 or bounds is None:
        return {}
    low, high = bounds
    truth, found = (
        pictures if bounds == (0.0, 1.0) else (pictures - low) / (high - low)
        for pictures in (result.truth, result.reconstruction)
    )
    return {"truth": truth, "reconstruction": found.clamp(0, 1)}


def shorten(attack: Attack, length: PlannedAttack) -> Attack:
    """The attack at a share of its own length.

    A share and not a number: the attacker who knows a defence may run for another length than
    the one who does not, and both must be cut alike.
    """
    own = attack.effort
    steps = None if own.steps is None else scale_steps(own.steps, steps=length.steps, of=length.of)
    return attack.with_effort(Effort(steps, length.restarts or own.restarts, own.attempts))


def scale_steps(own: int, *, steps: int, of: int) -> int:
    """`steps` / `of` of `own` steps, rounded up, never below the least that makes sense."""
    return min(own, max(FEWEST_STEPS, math.ceil(own * steps / of)))


def attack_findings(result: AuditResult, *, paper: str) -> AttackFindings:
    """Every number of a cell; the same spec gives the same bytes."""
    columns = {} if result.scores is None else _columns(result.scores)
    if result.baseline_psnr is not None:
        columns["baseline_psnr"] = result.baseline_psnr
    trained = {} if result.trained_scores is None else _columns(result.trained_scores)
    return AttackFindings(
        attack_paper=paper,
        n=0 if result.scores is None else len(result.scores),
        scores={name: _values(column) for name, column in columns.items()},
        trained_scores={name: _values(column) for name, column in trained.items()},
        stats={name: _stats(name, column) for name, column in columns.items() if _is_summable(column)},
        loss=number(result.loss),
        history=thin(result.history),
        evaluations=result.evaluations,
        notes=list(result.notes),
        server=result.server,
        rounds=result.rounds,
    )


def _columns(scores: Scores) -> dict[str, Tensor]:
    """One value per example for every metric that was computed."""
    return {**scores.metrics, "label_correct": scores.label_correct}


def _values(column: Tensor) -> list[float | bool | None]:
    return [value if isinstance(value, bool) else number(value) for value in column.tolist()]


def _is_summable(column: Tensor) -> bool:
    return column.is_floating_point() and bool(torch.isfinite(column).all())


def _stats(name: str, column: Tensor) -> MetricStats:
    found = summarise(column, higher_is_worse=name in _HIGHER_IS_WORSE)
    quantiles = {f"q{percent:02d}": value for percent, value in found.quantiles.items()}
    low, high = found.ci
    return MetricStats.model_validate(
        {"median": found.median, "worst": found.worst, "mean": found.mean, "n": found.n, **quantiles}
        | {"ci_low": low, "ci_high": high}
    )


def _training(spec: TrainingCellSpec) -> CellOutcome:
    subject = Subject(spec.subject)
    defence = defence_from_spec(spec.defence)
    train, test = subject.training_data(examples=spec.training.examples)
    found = measure_utility(
        subject.model(),
        train,
        test,
        defence=defence,
        seed=spec.seed,
        **spec.training.model_dump(exclude={"examples"}),
    )
    findings = TrainingFindings(
        accuracy=found.accuracy,
        ci=found.interval,
        final_loss=number(found.final_loss),
        nonzero_fraction=found.nonzero_fraction,
        diverged=found.diverged,
        rounds=found.rounds,
        paper="" if defence is None else defence.paper,
    )
    return CellOutcome(Status.OK, findings.model_dump(mode="json"), measured={"step_seconds": found.step_seconds})


def number(value: float) -> float | None:
    """A finite float, or None: JSON has no NaN."""
    return float(value) if math.isfinite(value) else None


def thin(history: tuple[float, ...]) -> list[float | None]:
    """At most a page-width of points, the first and last included."""
    if len(history) <= _HISTORY_POINTS:
        return [number(value) for value in history]
    places = torch.linspace(0, len(history) - 1, _HISTORY_POINTS).round().long().tolist()
    return [number(history[place]) for place in places]
