"""Updates that someone else made: attack each, score it where the true examples are known, and sum up.

Unlike in an audit, nothing here is right by construction: the description of an update may be wrong, and is held
against it. Without the true examples a result has a fit and a status, and no grade.
"""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakscope.attack import Attack, Watch
from leakscope.audits.findings import attack_findings
from leakscope.audits.nulls import PRIOR, PUBLIC, Attacked, Nulls, measure_nulls, take_best
from leakscope.errors import BadInputError, LeakscopeError
from leakscope.explanation import explained_by
from leakscope.metrics import score
from leakscope.observation.scenario import get_scenario
from leakscope.report import CellRecord, Summary, Verdict, verdict
from leakscope.report.evidence import NO_DEFENCE
from leakscope.report.schema import AttackFindings, Counts, ScenarioText
from leakscope.report.tokens import UNGRADED, tokens_verdict
from leakscope.report.words import fit_words, plural
from leakscope.types import AuditResult, Batch, Fit, Observation, Reconstruction
from leakscope.version import __version__

# Decibels above which an example counts as leaked where nobody says otherwise; as in an audit.
DEFAULT_GATE = 20.0
_NULL_WORDS = {
    PRIOR: "What the same attack reaches without the update",
    PUBLIC: "How near another picture of the same kind comes",
}


@dataclass(frozen=True)
class AttackedUpdate:
    """What came back out of one update, as an attacker has it and as an audit records it."""

    found: Reconstruction
    result: AuditResult


def attack_update(
    attack: Attack, seen: Observation, *, truth: Batch | None = None, seed: int = 0, watch: Watch | None = None
) -> AttackedUpdate:
    """Attack one update; `truth` is for the score and the fit alone, the attack never sees it."""
    if truth is not None and tuple(truth.inputs.shape[1:]) != seen.input_shape:
        raise BadInputError(
            f"the true examples have shape {list(truth.inputs.shape[1:])}, the inputs of the network "
            f"{list(seen.input_shape)}; bring them to that shape"
        )
    began = time.perf_counter()
    found = attack.reconstruct(seen, seed, watch=watch)
    result = AuditResult(
        attack=attack.name,
        defence=NO_DEFENCE,
        scenario=seen.scenario,
        seed=seed,
        status=found.status,
        scores=None,
        loss=found.loss,
        history=found.history,
        evaluations=found.evaluations,
        seconds=time.perf_counter() - began,
        reconstruction=found.inputs,
        notes=found.notes,
        fits=() if found.fit is None else (_with_truth(found.fit, seen, truth),),
    )
    return AttackedUpdate(found, result if truth is None else _score(result, found, truth))


def _with_truth(fit: Fit, seen: Observation, truth: Batch | None) -> Fit:
    """The fit with what the true examples explain: little, where the update is not what it was declared to be."""
    if truth is None:
        return fit
    try:
        return replace(fit, truth=explained_by(seen, truth.inputs, truth.targets)[0])
    except LeakscopeError:
        return fit


def _score(result: AuditResult, found: Reconstruction, truth: Batch) -> AuditResult:
    scores = score(found, truth)
    # Tokens are a set: there is nothing to arrange beside the truth.
    arranged = None if found.tokens is not None else _arrange(found.inputs, truth.inputs, scores.assignment)
    scored = replace(result, scores=scores, reconstruction=arranged, truth=truth.inputs)
    return _with_nulls(scored, measure_nulls([Attacked(found, truth)], seed=result.seed))


def _with_nulls(result: AuditResult, nulls: Nulls) -> AuditResult:
    has_psnr = result.scores is not None and "psnr" in result.scores.metrics
    best = take_best(nulls.baselines) if has_psnr else None
    return replace(
        result, baseline_psnr=best, baselines=nulls.baselines, notes=tuple(dict.fromkeys((*result.notes, *nulls.notes)))
    )


def add_nulls(attacked: AttackedUpdate, record: CellRecord, nulls: Nulls) -> tuple[AttackedUpdate, CellRecord]:
    """A scored update beside more null baselines than the blind guess, and its line of the report."""
    result = _with_nulls(attacked.result, nulls)
    findings = attack_findings(result, paper=record.attack_paper)
    told = CellRecord.model_validate(record.model_dump() | findings.model_dump())
    return replace(attacked, result=result), told


def _arrange(found: Tensor, truth: Tensor, places: Tensor) -> Tensor:
    """Reconstructions in the order of the truths; grey where there is none."""
    grey = torch.full_like(truth[:1], 0.5)
    parts = [found[[place]].to(truth) if place >= 0 else grey for place in places.tolist()]
    return torch.cat(parts).nan_to_num(0.5)


def record_update(attacked: AttackedUpdate, *, name: str, model: str, seen: Observation, paper: str) -> CellRecord:
    """One line of the report: an update under the name of its file."""
    findings = attack_findings(attacked.result, paper=paper)
    which = _which(name, model=model, scenario=seen.scenario, attack=attacked.result.attack, seed=attacked.result.seed)
    count = seen.num_examples or len(attacked.found.inputs)
    told = {"status": str(attacked.result.status), "local": seen.local, "batch_size": max(1, count)}
    return CellRecord.model_validate(findings.model_dump() | which | told)


def record_failure(
    name: str, *, model: str, scenario: str, attack: str, seed: int, status: str, error: str
) -> CellRecord:
    """One line of the report: a file that could not be attacked, with the reason."""
    which = _which(name, model=model, scenario=scenario, attack=attack, seed=seed)
    return CellRecord.model_validate(AttackFindings(error=error).model_dump() | which | {"status": status})


def _which(name: str, *, model: str, scenario: str, attack: str, seed: int) -> dict[str, object]:
    key = hashlib.sha256("\0".join((name, model, scenario, attack, str(seed))).encode()).hexdigest()[:32]
    return {
        "key": key,
        "model": model,
        "data": name,
        "attack": attack,
        "defence": NO_DEFENCE,
        "scenario": scenario,
        "seed": seed,
    }


def summarise_updates(
    records: Sequence[CellRecord], *, title: str, command: str = "", fail_above: float | None = None
) -> Summary:
    """All updates in one document, as an audit writes it; the verdict speaks of a grade only where there is truth."""
    threshold = DEFAULT_GATE if fail_above is None else fail_above
    statuses = [record.status for record in records]
    failed = {status: statuses.count(status) for status in sorted(set(statuses)) if status != "ok"}
    scored = any(record.column("psnr") for record in records)
    judged = verdict(records, threshold, is_default=fail_above is None) if scored else _ungraded(records)
    judged = tokens_verdict(records) or judged
    return Summary(
        schema=1,
        title=title,
        leakscope=__version__,
        command=command,
        environment={"python": platform.python_version(), "torch": torch.__version__.split("+")[0]},
        code={"version": __version__},
        threshold_psnr=threshold,
        verdict=judged,
        scenarios={name: _scenario_text(name) for name in dict.fromkeys(record.scenario for record in records)},
        cells=list(records),
        counts=Counts(total=len(records), ok=statuses.count("ok"), failed=failed),
        not_tested=[
            "Other attacks, scenarios and seeds than those listed.",
            "Defences: each update was attacked as it was shared.",
            *_missing_nulls(records),
        ],
        reproduce=[command] if command else [],
    )


def _missing_nulls(records: Sequence[CellRecord]) -> list[str]:
    """Which baselines do not stand beside all scores."""
    scored = [record for record in records if record.column("psnr")]
    lacking = {name: [record for record in scored if name not in record.baselines] for name in _NULL_WORDS}
    return [
        f"{_NULL_WORDS[name]} ({name}), for {plural(len(found), 'update')} of {len(scored)}."
        for name, found in lacking.items()
        if found
    ]


def _ungraded(records: Sequence[CellRecord]) -> Verdict:
    failed = [record for record in records if record.status != "ok"]
    told = [f"{record.data}: {words}." for record in records[:5] if (words := fit_words(record))]
    first = (
        "No true examples were given, so nothing was scored or graded. What was rebuilt is in the folder of the "
        "result; --truth grades it."
    )
    last = f"{plural(len(failed), 'update')} of {len(records)} did not end ok." if failed else ""
    return Verdict(
        grade="?",
        status=UNGRADED,
        headline="Updates were attacked, but not graded",
        sentences=[sentence for sentence in (first, *told, last) if sentence],
        exit_code=3 if failed else 0,
    )


def _scenario_text(name: str) -> ScenarioText:
    rung = get_scenario(name)
    return ScenarioText(
        grants=sorted(item.value for item in rung.grants),
        withholds=sorted(item.value for item in rung.withholds),
        text=rung.text,
    )
