"""The fit of a reconstruction, with its diagnosis: what the base class of attacks asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from leakscope.errors import LeakscopeError
from leakscope.explanation.diagnosis import Refit, case_of, diagnose_case
from leakscope.explanation.fit import MatchedPart, explained_by
from leakscope.explanation.verdict import judge_with_truth
from leakscope.types import Batch, Fit, Reconstruction, Status

AS_GOOD = "measured with the truth: the true examples explain the update no better than this result, so it counts"


@dataclass(frozen=True)
class Assessment:
    """The fit of a result, what even the truth may reach, and whether the diagnosis names another description."""

    fit: Fit
    attainable: float = 1.0
    is_named: bool = False


def measure_fit(
    compared: MatchedPart, found: Reconstruction, *, refit: Refit | None = None, diagnosing: bool = False
) -> Assessment | None:
    """How much of the update a reconstruction explains; None where it cannot be replayed.

    With `diagnosing` a description that explains more is looked for, by `refit` where it needs another run.
    """
    case = case_of(compared.seen, found, view=compared.view)
    if case is None:
        return None
    fit = Fit(case.match.explained, case.match.cosine, case.unrelated)
    if not diagnosing:
        return Assessment(fit, case.attainable)
    diagnosis = diagnose_case(case, refit=refit)
    return Assessment(replace(fit, diagnosis=diagnosis.line), case.attainable, diagnosis.found is not None)


def settle_with_truth(
    compared: MatchedPart, found: Reconstruction, trained: Sequence[Batch], *, is_short: bool
) -> Reconstruction:
    """The same result with what the true examples explain, and the status that follows: for audits alone.

    `trained` are the examples of every pass: a defence may change them each time, and the pass that explains most
    stands for all. `is_short` says that the run had fewer steps than it needs, which no truth makes up for.
    """
    if found.fit is None:
        return found
    try:
        shares = [explained_by(compared.seen, one.inputs, one.targets, view=compared.view)[0] for one in trained]
    except LeakscopeError:
        return found
    fit = replace(found.fit, truth=max(shares))
    has_failed = found.status in (Status.DIVERGED, Status.UNFINISHED)
    # One result for several examples is their mixture, however well it explains the update.
    is_mixture = len(found.inputs) < min(len(one) for one in trained)
    if has_failed and (is_short or is_mixture):
        return replace(found, fit=fit)
    unknowns = max(one.inputs.numel() for one in trained)
    status = judge_with_truth(found.status, fit, redundancy=compared.count() / unknowns)
    notes = (*found.notes, AS_GOOD) if has_failed and status is Status.OK else found.notes
    return replace(found, fit=fit, status=status, notes=notes)
