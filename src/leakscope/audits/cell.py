"""One cell: an attack on the updates of one or more victims, scored against the truth.

This is the only place, with `score`, that holds both the observation and the private batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from leakscope import rng as random
from leakscope.attack import Attack
from leakscope.audits.rounds import Federation, Round, play
from leakscope.client import ClientRun
from leakscope.defence import Defence
from leakscope.errors import UsageError
from leakscope.metrics import guess_baseline, score, score_trained
from leakscope.observation.scenario import Scenario, get_scenario
from leakscope.tasks import Task
from leakscope.types import (
    AuditResult,
    Batch,
    LocalTraining,
    Loss,
    Observation,
    Reconstruction,
    Scores,
    Status,
)


def run_cell(
    model: nn.Module,
    batches: Batch | Sequence[Batch],
    attack: Attack,
    *,
    defence: Defence | None = None,
    adaptive: bool = False,
    local: LocalTraining | None = None,
    scenario: str | Scenario = "C",
    seed: int = 0,
    task: Task | None = None,
    loss: Loss | None = None,
    rounds: int | None = None,
    with_lpips: bool = False,
    limited: Callable[[Attack], Attack] | None = None,
) -> AuditResult:
    """Attack what clients with `batches` would share, and score what came back.

    Several batches are several victims of the same model. `adaptive` runs the attacker who
    knows the defence. `limited` changes the attack that runs, after a defence has adapted it: a
    limit set before could be undone by what the attacker knows. `rounds` is by default what the attack
    needs. The model is not modified.
    """
    victims = (batches,) if isinstance(batches, Batch) else tuple(batches)
    if not victims:
        raise UsageError("audit needs at least one batch, got none")
    began = time.perf_counter()
    chosen = defence.adapt(attack) if adaptive and defence is not None else attack
    chosen = chosen if limited is None else limited(chosen)
    federation = Federation(
        model, victims, defence, local, get_scenario(scenario), seed, task, loss, _count_rounds(rounds, chosen)
    )
    played = play(federation, chosen)
    if not played[-1].seen:
        rows, status = None, Status.SEALED
    else:
        rows = _attack(chosen, played, victims, seed)
        status = _joint_status([row.found.status for row in rows])
    result = AuditResult(
        attack=attack.name,
        defence=defence.name if defence else "none",
        scenario=federation.scenario.name,
        seed=seed,
        status=status,
        scores=None,
        adaptive=adaptive,
        rounds=len(played),
        server="malicious" if chosen.is_malicious else "honest",
    )
    return result if rows is None else _score(result, rows, with_lpips=with_lpips, seconds=time.perf_counter() - began)


@dataclass(frozen=True)
class _Row:
    """One attacked update: what came back, and what was behind it."""

    found: Reconstruction
    victim: Batch
    run: ClientRun
    place: int


def _count_rounds(given: int | None, attack: Attack) -> int:
    if given is None:
        return attack.rounds
    if given < attack.rounds:
        raise UsageError(
            f"attack {attack.name!r} needs {attack.rounds} rounds, got rounds={given}; leave rounds out, or give more"
        )
    return given


def _attack(attack: Attack, played: Sequence[Round], victims: Sequence[Batch], seed: int) -> list[_Row]:
    """Attack the last round with all that came before, or every round by itself where the attack joins none."""
    together = attack.joins_rounds or attack.is_malicious
    rows = []
    for number, one in enumerate(played[-1:] if together else played):
        own = seed if number == 0 else random.child_seed(seed, "round", number)
        found = attack.reconstruct(list[Observation](one.seen), own)
        rows += [
            _Row(each, victim, run, place)
            for place, (each, victim, run) in enumerate(zip(found, victims, one.runs, strict=True))
        ]
    return rows


def _score(result: AuditResult, rows: Sequence[_Row], *, with_lpips: bool, seconds: float) -> AuditResult:
    scores = [score(row.found, row.victim, with_lpips=with_lpips) for row in rows]
    trained = [score_trained(row.found, row.victim, row.run.trained) for row in rows if row.run.trained]
    worst = max(range(len(rows)), key=lambda i: float(scores[i].psnr.max()))
    guesses = [guess_baseline(row.victim, seed=random.child_seed(result.seed, "guess", row.place)) for row in rows]
    return replace(
        result,
        scores=Scores.join(scores),
        trained_scores=Scores.join(trained) if len(trained) == len(rows) else None,
        loss=max(row.found.loss for row in rows),
        baseline_psnr=torch.cat(guesses),
        history=rows[worst].found.history,
        evaluations=sum(row.found.evaluations for row in rows),
        seconds=seconds,
        reconstruction=torch.cat([_pair(row, one) for row, one in zip(rows, scores, strict=True)]),
        truth=torch.cat([row.victim.inputs for row in rows]),
        notes=tuple(dict.fromkeys(note for row in rows for note in row.found.notes)),
    )


def _joint_status(statuses: Sequence[Status]) -> Status:
    """OK only when every victim's attack is evidence; otherwise the first failure, by name."""
    return next((status for status in statuses if status is not Status.OK), Status.OK)


def _pair(row: _Row, scores: Scores) -> Tensor:
    """Reconstructions in the order of the truths; grey where there is none."""
    grey = torch.full_like(row.victim.inputs[:1], 0.5)
    places = scores.assignment.tolist()
    return torch.cat([row.found.inputs[[place]] if place >= 0 else grey for place in places]).nan_to_num(0.5)
