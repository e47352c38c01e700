"""One cell: an attack on the updates of one or more victims, scored against the truth.

This is the only place, with `score`, that holds both the observation and the private batch.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from leakscope import rng as random
from leakscope.attack import Attack
from leakscope.client import share
from leakscope.errors import UsageError
from leakscope.metrics import guess_baseline, score
from leakscope.threat import Scenario, freeze, get_scenario, observe_many
from leakscope.types import (
    AuditResult,
    Batch,
    Defence,
    LocalTraining,
    Loss,
    Reconstruction,
    Scores,
    SealedUpdate,
    SharedUpdate,
    Status,
)


def audit(
    model: nn.Module,
    batches: Batch | Sequence[Batch],
    attack: Attack,
    *,
    defence: Defence | None = None,
    adaptive: bool = False,
    local: LocalTraining | None = None,
    scenario: str | Scenario = "C",
    seed: int = 0,
    loss: Loss | None = None,
    with_lpips: bool = False,
    limited: Callable[[Attack], Attack] | None = None,
) -> AuditResult:
    """Attack what clients with `batches` would share, and score what came back.

    Several batches are several victims of the same model. `adaptive` runs the attacker who
    knows the defence. `limited` changes the attack that runs, after a defence has adapted it: a
    limit set before could be undone by what the attacker knows. The model is not modified.
    """
    victims = [batches] if isinstance(batches, Batch) else list(batches)
    if not victims:
        raise UsageError("audit needs at least one batch, got none")
    rung = get_scenario(scenario)
    began = time.perf_counter()
    handed_out = attack.craft(model if defence is None else defence.harden(model)).model
    chosen = defence.adapt(attack) if adaptive and defence is not None else attack
    chosen = chosen if limited is None else limited(chosen)
    updates = [
        share(handed_out, victim, defence=defence, local=local, seed=random.child_seed(seed, "share", i), loss=loss)
        for i, victim in enumerate(victims)
    ]
    protection = defence.name if defence else "none"
    if any(isinstance(update, SealedUpdate) for update in updates):
        return AuditResult(attack.name, protection, rung.name, seed, Status.SEALED, scores=None, adaptive=adaptive)
    readable = [update for update in updates if isinstance(update, SharedUpdate)]
    frozen, notes = freeze(handed_out)
    seen = observe_many(frozen, readable, scenario=rung, truths=victims, loss=loss, notes=notes)
    found = chosen.reconstruct(seen, seed)
    return _result(
        found, victims, attack=attack.name, defence=protection, scenario=rung.name, seed=seed, adaptive=adaptive,
        with_lpips=with_lpips, seconds=time.perf_counter() - began,
    )  # fmt: skip


def _result(
    found: list[Reconstruction], victims: list[Batch], *, attack: str, defence: str, scenario: str, seed: int,
    adaptive: bool, with_lpips: bool, seconds: float,
) -> AuditResult:  # fmt: skip
    scores = [score(one, victim, with_lpips=with_lpips) for one, victim in zip(found, victims, strict=True)]
    worst = max(range(len(found)), key=lambda i: float(scores[i].psnr.max()))
    guesses = [guess_baseline(v, seed=random.child_seed(seed, "guess", i)) for i, v in enumerate(victims)]
    return AuditResult(
        attack=attack, defence=defence, scenario=scenario, seed=seed, adaptive=adaptive,
        status=_joint_status([one.status for one in found]),
        scores=Scores.join(scores),
        loss=max(one.loss for one in found),
        baseline_psnr=torch.cat(guesses),
        history=found[worst].history,
        evaluations=sum(one.evaluations for one in found),
        seconds=seconds,
        peak_mb=peak_memory_mb(),
        reconstruction=torch.cat([_paired(*row) for row in zip(found, scores, victims, strict=True)]),
        truth=torch.cat([victim.inputs for victim in victims]),
        notes=tuple(dict.fromkeys(note for one in found for note in one.notes)),
    )  # fmt: skip


def _joint_status(statuses: list[Status]) -> Status:
    """OK only when every victim's attack is evidence; otherwise the first failure, by name."""
    return next((status for status in statuses if status is not Status.OK), Status.OK)


def _paired(found: Reconstruction, scores: Scores, victim: Batch) -> Tensor:
    """Reconstructions in the order of the truths; grey where there is none."""
    grey = torch.full_like(victim.inputs[:1], 0.5)
    rows = [found.inputs[[place]] if place >= 0 else grey for place in scores.assignment.tolist()]
    return torch.cat(rows).nan_to_num(0.5)


def peak_memory_mb() -> float:
    """Largest resident size of this process so far, in megabytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3
