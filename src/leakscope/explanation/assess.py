"""The fit of a reconstruction, with its diagnosis: what the base class of attacks asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from leakscope.errors import LeakscopeError
from leakscope.explanation.diagnosis import Refit, case_of, diagnose_case
from leakscope.explanation.fit import explained_by
from leakscope.explanation.verdict import judge_with_truth
from leakscope.types import Fit, Observation, Reconstruction


@dataclass(frozen=True)
class Assessment:
    """The fit of a result, what even the truth may reach, and whether the diagnosis names another description."""

    fit: Fit
    attainable: float = 1.0
    is_named: bool = False


def measure_fit(
    seen: Observation, found: Reconstruction, *, refit: Refit | None = None, diagnosing: bool = False
) -> Assessment | None:
    """How much of the update a reconstruction explains; None where it cannot be replayed.

    With `diagnosing` a description that explains more is looked for, by `refit` where it needs another run.
    """
    case = case_of(seen, found)
    if case is None:
        return None
    fit = Fit(case.match.explained, case.match.cosine, case.unrelated)
    if not diagnosing:
        return Assessment(fit, case.attainable)
    diagnosis = diagnose_case(case, refit=refit)
    return Assessment(replace(fit, diagnosis=diagnosis.line), case.attainable, diagnosis.found is not None)


def settle_with_truth(seen: Observation, found: Reconstruction, *, inputs: Tensor, targets: Tensor) -> Reconstruction:
    """The same result with what the true examples explain, and the status that follows: for audits alone."""
    if found.fit is None:
        return found
    try:
        truth = explained_by(seen, inputs, targets)[0]
    except LeakscopeError:
        return found
    fit = replace(found.fit, truth=truth)
    return replace(found, fit=fit, status=judge_with_truth(found.status, fit))
