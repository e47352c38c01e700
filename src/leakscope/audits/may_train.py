"""One answer to "may I train on this model?": what the inspection found, and what an honest server could take."""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.audits.passive import PassiveRisk, Rebuilt
from leakscope.inspection import Inspection

CLEAN, FOUND, UNKNOWN = 0, 1, 3


@dataclass(frozen=True)
class TrainingAdvice:
    """The answer in one line, and the exit code that says the same to a program.

    Attributes:
        word: "no", "only with a defence", "yes", "weights only" or "not known".
        line: the answer with its reason.
        exit_code: 0 nothing found, 1 a finding or a leak above the gate, 3 not known.
    """

    word: str
    line: str
    exit_code: int


def advise_training(
    inspection: Inspection, risk: PassiveRisk | None, *, has_examples: bool, fail_above: float | None = None
) -> TrainingAdvice:
    """Put both halves together; `risk` is None where no attack was asked for, `fail_above` a gate in dB."""
    if inspection.findings:
        names = ", ".join(dict.fromkeys(one.detector for one in inspection.findings))
        count = len(inspection.findings)
        told = f"{count} {'finding' if count == 1 else 'findings'} ({names})"
        return TrainingAdvice("no", f"NO: {told}; do not train on this model until they are explained", FOUND)
    clean = "no listed construction was found"
    if risk is None:
        if not has_examples:
            line = f"WEIGHTS ONLY: {clean}, but only the weights were looked at; give your own examples (--batch)"
            return TrainingAdvice("weights only", line, CLEAN)
        line = f"YES, AS FAR AS WAS CHECKED: {clean}; what an honest server could take was not measured (--budget)"
        return TrainingAdvice("yes", line, CLEAN)
    return _judge_risk(risk, clean=clean, fail_above=fail_above)


def _judge_risk(risk: PassiveRisk, *, clean: str, fail_above: float | None) -> TrainingAdvice:
    worst = risk.worst
    above = [one for one in risk.rebuilt if fail_above is not None and (one.psnr or 0.0) > fail_above]
    if worst is not None and (worst.is_recognisable or above):
        shown = above[0] if above else worst
        gate = f", above the gate of {fail_above:g} dB" if above else ""
        line = f"ONLY WITH A DEFENCE: {clean}, but an honest server could take this: {describe(shown, risk)}{gate}"
        return TrainingAdvice("only with a defence", line, FOUND if above else CLEAN)
    if not risk.is_evidence:
        ends = ", ".join(f"{one.attack} {one.status}" for one in risk.rebuilt) or "no attack works on this network"
        line = f"NOT KNOWN: {clean}, but what an honest server could take was not settled ({ends}); raise --budget"
        return TrainingAdvice("not known", line, UNKNOWN)
    told = "" if worst is None else f"; the most an honest server took: {describe(worst, risk)}"
    return TrainingAdvice("yes", f"YES, AS FAR AS WAS CHECKED: {clean}{told}", CLEAN)


def describe(one: Rebuilt, risk: PassiveRisk) -> str:
    """One attack in words."""
    of = f"{risk.examples} {'example' if risk.examples == 1 else 'examples'}"
    if one.psnr is None:
        return f"{one.attack} on an update of {of}: {one.status}"
    without = "" if one.without is None else f", {one.without:.1f} dB without the update"
    return f"{one.attack} on an update of {of}: grade {one.grade}, {one.psnr:.1f} dB{without}"
