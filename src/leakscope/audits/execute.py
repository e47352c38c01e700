"""What a worker process does with one cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from leakscope.attack import Attack, Effort
from leakscope.audits.cell import run_cell
from leakscope.audits.findings import attack_findings, number
from leakscope.audits.inputs import Inputs, changed
from leakscope.audits.nulls import PUBLIC_PICTURES
from leakscope.audits.own_code import hash_specs
from leakscope.audits.read_files import hash_option_files
from leakscope.audits.specs import AttackCellSpec, TrainingCellSpec, parse_cell_spec
from leakscope.audits.subject import Subject
from leakscope.defence import Defence
from leakscope.errors import KnowledgeError, UnsuitableError
from leakscope.federated import Trained, train_with
from leakscope.federated.training import choose_local
from leakscope.registry import attack_from_spec, defence_from_spec
from leakscope.report.schema import GuaranteeRecord, PlannedAttack, TrainingFindings
from leakscope.runner import CellOutcome
from leakscope.runner.limits import is_exhaustion
from leakscope.runner.worker import failure_of
from leakscope.software import software
from leakscope.types import AuditResult, Bounds, LocalTraining, Status

# Below this an optimiser has hardly left its start: the result would be noise that looks like protection.
FEWEST_STEPS = 20


def execute_planned(spec: Mapping[str, Any], *, inputs: Mapping[str, Any]) -> CellOutcome:
    """As `execute`, with inputs as they reach a worker."""
    return execute(spec, inputs=Inputs.from_json(inputs))


def execute(spec: Mapping[str, Any], *, inputs: Inputs | None = None) -> CellOutcome:
    """Run an attack cell or a training cell; a refusal is an outcome, not an error.

    `inputs` tell where the data are and what they must be; no message of theirs names a private path.
    """
    parsed, known = parse_cell_spec(spec), inputs or Inputs()
    try:
        _check_unchanged(parsed)
        subject = Subject(parsed.subject, known)
        return _attack(parsed, subject) if parsed.kind == "attack" else _training(parsed, subject)
    except (KnowledgeError, UnsuitableError) as refusal:
        return CellOutcome(Status.REFUSED, {"error": known.redact(str(refusal))})
    except Exception as error:
        if is_exhaustion(error):
            raise
        failed = failure_of(error)
        return replace(failed, record={**failed.record, "message": known.redact(failed.record["message"])})


def _check_unchanged(spec: AttackCellSpec | TrainingCellSpec) -> None:
    """Refuse to compute with other software, code or files than the cell's key names."""
    if spec.software and spec.software != software():
        raise changed("leakscope, or a library that it computes with,")
    named = (spec.attack, spec.defence) if spec.kind == "attack" else (spec.defence,)
    if hash_option_files(*named) != spec.file_hashes:
        raise changed("a file that an option of the attack or the defence names")
    if hash_specs(*named) != spec.code_hash:
        raise changed("the source of an attack or a defence of your own, or what it imports,")


def _attack(spec: AttackCellSpec, subject: Subject) -> CellOutcome:
    attack = attack_from_spec(spec.attack)
    limit, public = spec.limit, subject.public_examples(PUBLIC_PICTURES)
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
        task=subject.task,
        rounds=spec.rounds,
        with_lpips=spec.lpips,
        limited=None if limit is None else lambda chosen: shorten(chosen, limit),
        public=public,
        prior_alone=spec.prior_alone,
    )
    tensors = _pictures(result, victims[0].bounds) if spec.keep_images else {}
    notes = () if public is not None else ("no other examples of these data: no nearest public picture was measured",)
    findings = attack_findings(replace(result, notes=(*result.notes, *notes)), paper=attack.paper)
    return CellOutcome(result.status, findings.model_dump(mode="json"), tensors, seconds=result.seconds)


def _pictures(result: AuditResult, bounds: Bounds | None) -> dict[str, Tensor]:
    """Originals and reconstructions in [0, 1], in which the report draws; nothing where inputs are not pictures."""
    if result.truth is None or result.reconstruction is None or result.truth.ndim != 4 or not isinstance(bounds, tuple):
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


def _training(spec: TrainingCellSpec, subject: Subject) -> CellOutcome:
    defence = defence_from_spec(spec.defence)
    train, test = subject.training_data(examples=spec.training.examples)
    told = spec.training
    found = train_with(
        defence,
        subject.model(),
        train,
        test,
        how=told.how,
        share=told.share,
        local=_local_of(spec) if told.share == "delta" else None,
        clients=told.shards,
        rounds=told.rounds,
        batch_size=told.batch_size,
        lr=told.lr,
        seeds=spec.seeds,
        task=subject.task,
    )
    findings = TrainingFindings(
        accuracy=found.accuracy,
        accuracies=list(found.accuracies),
        ci=found.interval,
        final_loss=number(found.final_loss),
        nonzero_fraction=found.nonzero_fraction,
        bytes_sent=found.bytes_sent,
        diverged=found.diverged,
        rounds=found.rounds,
        paper="" if defence is None else defence.paper,
        guarantee=_proven(defence, spec, examples=len(train)),
        guarantee_of_one=_proven_of_one(defence, spec),
        classes=found.classes,
        chance=found.chance,
        guesses=found.at_chance,
    )
    return CellOutcome(Status.OK, findings.model_dump(mode="json"), measured=_step_times(found))


def _proven(defence: Defence | None, spec: TrainingCellSpec, *, examples: int) -> GuaranteeRecord | None:
    """What a defence proves over all rounds of a training on so many examples.

    Clients train in every round as those of the audit do: ε of one gradient a round would be too small for them.
    """
    told = spec.training
    local = _local_of(spec) or choose_local(told.share, None, batch_size=told.batch_size, lr=told.lr)
    shard = examples // told.shards
    return _record(defence, examples=shard, batch_size=told.batch_size, steps=told.rounds, local=local)


def _proven_of_one(defence: Defence | None, spec: TrainingCellSpec) -> GuaranteeRecord | None:
    """What it proves of one gradient or change of weights, with an example known to be behind it."""
    if spec.audited is None:
        # The smallest batch: the attacked one may be of any size, and no noise is less than on one example.
        return _record(defence, examples=1, batch_size=1, steps=1, local=None)
    size = spec.audited.batch_size
    return _record(defence, examples=size, batch_size=size, steps=1, local=spec.audited.local)


def _local_of(spec: TrainingCellSpec) -> LocalTraining | None:
    return None if spec.audited is None else spec.audited.local


def _record(
    defence: Defence | None, *, examples: int, batch_size: int, steps: int, local: LocalTraining | None
) -> GuaranteeRecord | None:
    sizes = {"examples": examples, "batch_size": batch_size, "steps": steps}
    found = None if defence is None else defence.guarantee(**sizes, local=local)
    if found is None:
        return None
    return GuaranteeRecord(
        epsilon=number(found.epsilon),
        delta=found.delta,
        unit=found.unit,
        sampling_rate=found.sampling_rate,
        steps=found.steps,
        local_steps=found.local_steps,
        noise_multiplier=found.noise_multiplier,
        reconstruction={f"{prior:g}": success for prior, success in found.reconstruction.items()},
        assumes=found.assumes,
    )


def _step_times(found: Trained) -> dict[str, float]:
    """What differs from run to run, and so stays out of the cell's file."""
    ratio = found.step_ratio
    times = {} if ratio is None else {"step_ratio": ratio.median, "step_low": ratio.low, "step_high": ratio.high}
    return {"step_seconds": found.step_seconds, **times}
