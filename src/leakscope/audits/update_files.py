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

from leakscope import rng as random
from leakscope.attack import Attack, Watch
from leakscope.audits.findings import attack_findings
from leakscope.audits.nulls import GUESS, RANDOM_TOKENS
from leakscope.errors import BadInputError, LeakscopeError
from leakscope.explanation import explained_by
from leakscope.metrics import guess_baseline, guess_tokens, score
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
    if found.tokens is not None:
        guess = guess_tokens(truth, found.vocabulary or 1)
        return replace(result, scores=score(found, truth), baselines={RANDOM_TOKENS: guess}, truth=truth.inputs)
    scores = score(found, truth)
    guess = guess_baseline(truth, seed=random.child_seed(result.seed, "guess", 0))
    return replace(
        result,
        scores=scores,
        baseline_psnr=guess,
        baselines={GUESS: guess},
        reconstruction=_arrange(found.inputs, truth.inputs, scores.assignment),
        truth=truth.inputs,
    )


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
            "What the same attack reaches without the update (prior alone); the baseline is a blind guess.",
        ],
        reproduce=[command] if command else [],
    )


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
