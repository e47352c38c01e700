"""One cell: an attack on the updates of one or more victims, scored against the truth.

This is the only place, with `score`, that holds both the observation and the private batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from leakscope import rng as random
from leakscope.attack import Attack
from leakscope.audits.nulls import Attacked, Nulls, draw_unrelated, measure_nulls, take_best
from leakscope.audits.opened import look_inside
from leakscope.audits.rounds import Federation, Round, play
from leakscope.client import ClientRun
from leakscope.defence import Defence
from leakscope.errors import UsageError
from leakscope.metrics import score, score_trained
from leakscope.observation.scenario import Scenario, get_scenario
from leakscope.report.grades import find_worst
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
    public: Batch | None = None,
    prior_alone: bool = True,
    pooled: bool = False,
) -> AuditResult:
    """Attack what clients with `batches` would share, and score what came back.

    Several batches are several victims of the same model. `adaptive` runs the attacker who
    knows the defence. `limited` changes the attack that runs, after a defence has adapted it: a
    limit set before could be undone by what the attacker knows. `rounds` is by default what the attack
    needs. The model is not modified.

    `public` are examples like the private ones that are nobody's secret: they make null baselines and are never shown
    to the attack. `prior_alone` attacks the update of something else as well, at the price of one more victim.

    `pooled` attacks the mean of all victims' updates as one update of all their examples. Where a defence seals what is
    sent, the server gets nothing, and what others get who can open it is in `also`.
    """
    victims = (batches,) if isinstance(batches, Batch) else tuple(batches)
    if not victims:
        raise UsageError("audit needs at least one batch, got none")
    began = time.perf_counter()
    chosen = defence.adapt(attack) if adaptive and defence is not None else attack
    chosen = chosen if limited is None else limited(chosen)
    federation = Federation(
        model,
        victims,
        defence,
        local,
        get_scenario(scenario),
        seed,
        task,
        loss,
        _count_rounds(rounds, chosen),
        pooled=pooled,
    )
    played = play(federation, chosen)
    if not played[-1].seen:
        rows, status = None, Status.SEALED
    else:
        rows = _attack(chosen, played, seed)
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
    if rows is None:
        inside = None if defence is None else defence.unsealed()
        look = partial(
            run_cell,
            model,
            victims,
            attack,
            defence=inside,
            adaptive=adaptive,
            local=local,
            scenario=scenario,
            seed=seed,
            task=task,
            loss=loss,
            rounds=rounds,
            with_lpips=with_lpips,
            limited=limited,
            public=public,
            prior_alone=prior_alone,
        )
        return result if inside is None else look_inside(result, look, clients=len(victims))
    nulls = _measure_nulls(federation, chosen, rows, public=public, prior_alone=prior_alone)
    return _score(result, rows, nulls=nulls, with_lpips=with_lpips, seconds=time.perf_counter() - began)


@dataclass(frozen=True)
class _Row:
    """One attacked update: what came back, and what was behind it."""

    found: Reconstruction
    victim: Batch
    run: ClientRun
    place: int

    def as_original(self) -> _Row:
        """The row with the pictures before what the client did to them, where the attack undoes it."""
        originals = self.found.originals if self.run.trained else None
        return self if originals is None else replace(self, found=replace(self.found, inputs=originals))


def _count_rounds(given: int | None, attack: Attack) -> int:
    if given is None:
        return attack.rounds
    if given < attack.rounds:
        raise UsageError(
            f"attack {attack.name!r} needs {attack.rounds} rounds, got rounds={given}; leave rounds out, or give more"
        )
    return given


def _attack(attack: Attack, played: Sequence[Round], seed: int) -> list[_Row]:
    """Attack the last round with all that came before, or every round by itself where the attack joins none."""
    together = attack.joins_rounds or attack.is_malicious
    rows = []
    for number, one in enumerate(played[-1:] if together else played):
        own = seed if number == 0 else random.child_seed(seed, "round", number)
        # The audit made these updates itself: their description is right.
        found = attack.reconstruct(list[Observation](one.seen), own, diagnosing=False)
        rows += [
            _Row(attack.judge(seen, each, run.trained or (victim,)), victim, run, place)
            for place, (each, (victim, run), seen) in enumerate(zip(found, one.behind, one.seen, strict=True))
        ]
    return rows


def _measure_nulls(
    federation: Federation, attack: Attack, rows: Sequence[_Row], *, public: Batch | None, prior_alone: bool
) -> Nulls:
    return measure_nulls(
        [Attacked(row.found, row.victim, row.place) for row in rows],
        seed=federation.seed,
        public=public,
        attack_unrelated=partial(_attack_unrelated, federation, attack) if prior_alone else None,
    )


def _attack_unrelated(federation: Federation, attack: Attack, public: Batch | None) -> Reconstruction:
    """The same attack, with the same seed, on the update of examples that have nothing to do with the victims."""
    seed = random.child_seed(federation.seed, "unrelated")
    # As many clients where their mean is attacked: what is behind it must be of the same size.
    likes = federation.victims if federation.pooled else federation.victims[:1]
    seeds = [seed, *(random.child_seed(seed, place) for place in range(1, len(likes)))]
    others = tuple(draw_unrelated(like, public, seed=own) for like, own in zip(likes, seeds, strict=True))
    played = play(replace(federation, victims=others), attack)
    return _attack(attack, played, federation.seed)[0].as_original().found


def _score(result: AuditResult, rows: Sequence[_Row], *, nulls: Nulls, with_lpips: bool, seconds: float) -> AuditResult:
    undone = [row.as_original() for row in rows]
    scores = [score(row.found, row.victim, with_lpips=with_lpips) for row in undone]
    trained = [score_trained(row.found, row.victim, row.run.trained) for row in rows if row.run.trained]
    joint, best = Scores.join(scores), take_best(nulls.baselines)
    owners = [row for row in rows for _ in range(len(row.victim))]
    ssim = joint.metrics.get("ssim")
    worst = find_worst(joint.leading.tolist(), ssim=None if ssim is None else ssim.tolist(), baseline=best.tolist())
    notes = [*(note for row in rows for note in row.found.notes), *nulls.notes]
    return replace(
        result,
        scores=joint,
        trained_scores=Scores.join(trained) if len(trained) == len(rows) else None,
        loss=max(row.found.loss for row in rows),
        baseline_psnr=best if "psnr" in joint.metrics else None,
        baselines=nulls.baselines,
        fits=tuple(row.found.fit for row in rows if row.found.fit is not None),
        history=owners[worst or 0].found.history,
        evaluations=sum(row.found.evaluations for row in rows),
        seconds=seconds,
        reconstruction=torch.cat([_pair(row, one) for row, one in zip(undone, scores, strict=True)]),
        truth=torch.cat([row.victim.inputs for row in rows]),
        notes=tuple(dict.fromkeys(notes)),
    )


def _joint_status(statuses: Sequence[Status]) -> Status:
    """OK only when every victim's attack is evidence; otherwise the first failure, by name."""
    return next((status for status in statuses if status is not Status.OK), Status.OK)


def _pair(row: _Row, scores: Scores) -> Tensor:
    """Reconstructions in the order of the truths; grey where there is none. A set of tokens has no order."""
    if row.found.tokens is not None:
        return row.found.inputs
    grey = torch.full_like(row.victim.inputs[:1], 0.5)
    places = scores.assignment.tolist()
    return torch.cat([row.found.inputs[[place]] if place >= 0 else grey for place in places]).nan_to_num(0.5)
