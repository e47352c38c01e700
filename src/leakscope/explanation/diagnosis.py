"""Which description explains an update better than the declared one?

Evidence comes in three strengths. Marks of the update itself need no examples. The length of the update against that
of a result which explains its direction tells rate, steps, momentum and sums. What only another run can tell (bounds,
modes of batch normalisation, an unknown rate) is asked of the attack, under the other description.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from leakscope.errors import LeakscopeError
from leakscope.explanation.fit import (
    View,
    attainable_share,
    best_match,
    measurable_targets,
    unchanged,
    unrelated_share,
    used_targets,
)
from leakscope.explanation.hypotheses import Case, Hypothesis, lengths
from leakscope.explanation.marks import marked, to_run
from leakscope.explanation.signatures import behind_dropout, was_changed
from leakscope.explanation.verdict import CONVINCING, FITTED, SOLVED, gain
from leakscope.observation.consistency import ADAM, DECAY
from leakscope.types import Observation, Reconstruction, limits_of

Refit = Callable[[Observation], Reconstruction]
# The length of an update means something where a result explains at least this gain of its direction.
_DIRECTED = 0.3
# Descriptions whose shares differ by less are equally good.
_EQUAL = 0.02
# A result with so many values at its bounds may be one that wants to leave them.
_AT_BOUNDS = 0.1


@dataclass(frozen=True)
class Diagnosis:
    """What explains an update.

    Attributes:
        declared: the share that the result explains as declared, with the declared length where there is one.
        unrelated: the most that inputs drawn without the update explain of it.
        hypotheses: other descriptions that were tried, the one that explains most first.
        found: the one that explains the update clearly better than the declared one, or whose mark it bears.
        described: the declared description in words.
        rest: what remains to be checked where nothing was found and the update is not explained.
    """

    declared: float
    unrelated: float
    hypotheses: tuple[Hypothesis, ...]
    found: Hypothesis | None
    described: str
    rest: str = ""

    @property
    def line(self) -> str:
        """One sentence with the figures; empty where nothing speaks against what was declared."""
        start = f"explained {_percent(self.declared)} as declared ({self.described})"
        if self.found is None:
            return f"{start}, {_percent(self.unrelated)} by unrelated inputs: {self.rest}" if self.rest else ""
        share = "" if self.found.explained is None else f"{_percent(self.found.explained)} {self.found.name}"
        why = f"{share} ({self.found.evidence})" if share and self.found.evidence else share or self.found.evidence
        return f"{start}, {why}: {self.found.remedy}"


def diagnose(
    seen: Observation, reconstruction: Reconstruction, *, refit: Refit | None = None, tries: int = 3
) -> Diagnosis | None:
    """Find a description that explains the update better than the declared one; None without targets to compare with.

    Args:
        seen: the update as it was declared.
        reconstruction: what an attack found under that declaration.
        refit: runs the attack again under another description, as `attack.reconstruct` does; without it only what is
            at hand is compared.
        tries: the most such runs.
    """
    case = case_of(seen, reconstruction)
    return None if case is None else diagnose_case(case, refit=refit, tries=tries)


def case_of(seen: Observation, reconstruction: Reconstruction, *, view: View = unchanged) -> Case | None:
    """The result beside what unrelated inputs explain; None where it cannot be replayed."""
    targets = measurable_targets(reconstruction)
    if targets is None:
        return None
    # What was found of unknown tensors of the network is part of the result.
    seen = replace(seen, given=reconstruction.unknowns)
    try:
        match = best_match(seen, reconstruction.inputs, targets, view=view)
        attainable = attainable_share(seen, reconstruction.inputs, targets)
        unrelated = unrelated_share(seen, targets, view=view)
        return Case(seen, reconstruction.inputs, targets, match, unrelated, attainable)
    except LeakscopeError:
        # A network that refuses these examples: the attack has a status of its own for it.
        return None


def diagnose_case(case: Case, *, refit: Refit | None, tries: int = 3) -> Diagnosis:
    """As `diagnose`, for a result that was measured."""
    tried: list[Hypothesis] = []
    found = None
    if gain(case.declared, case.unrelated) < SOLVED:
        found = _by_marks(case, refit, tried) or _by_length(case, tried)
    found = found or _by_runs(case, refit, tried, tries)
    rest = _what_remains(case) if case.is_poor and found is None else ""
    return Diagnosis(case.declared, case.unrelated, _sorted(tried), found, case.described, rest)


def _by_marks(case: Case, refit: Refit | None, tried: list[Hypothesis]) -> Hypothesis | None:
    for one in marked(case):
        measured = _replay(case, one)
        if refit is not None and one.other is not None:
            measured = _run(measured, refit)
        tried.append(measured)
        # A mark alone does not say that nothing else is wrong; with a figure it must explain more than the declared.
        if measured.explained is None or measured.explained > case.declared:
            return measured
    return None


def _by_length(case: Case, tried: list[Hypothesis]) -> Hypothesis | None:
    if gain(case.match.explained, case.unrelated) < _DIRECTED:
        return None
    measured = [_replay(case, one) for one in lengths(case)]
    tried.extend(measured)
    better = [one for one in measured if _is_clearly_better(case, one)]
    most = max((one.explained or 0.0 for one in better), default=0.0)
    # A description that has a name comes before one that is only a length, which always fits as well as any can.
    return next((one for one in better if (one.explained or 0.0) > most - _EQUAL), None)


def _by_runs(case: Case, refit: Refit | None, tried: list[Hypothesis], tries: int) -> Hypothesis | None:
    poor = case.is_poor
    if refit is None or was_changed(case.seen) or not (poor or _is_at_bounds(case)):
        return None
    for one in list(to_run(case))[:tries]:
        if not poor and one.leaves_bounds is None:
            continue
        measured = _run(one, refit)
        tried.append(measured)
        if _is_clearly_better(case, measured, least=CONVINCING):
            return measured
    return None


def _replay(case: Case, one: Hypothesis) -> Hypothesis:
    """The hypothesis with what the result at hand explains under it."""
    if one.other is None:
        return one
    try:
        return one.measured(best_match(one.other, case.inputs, case.targets), case.inputs)
    except LeakscopeError:
        return one


def _run(one: Hypothesis, refit: Refit) -> Hypothesis:
    """The hypothesis with what the attack explains under it."""
    assert one.other is not None
    try:
        result = refit(one.other)
        targets = used_targets(result)
        return one if targets is None else one.measured(best_match(one.other, result.inputs, targets), result.inputs)
    except LeakscopeError:
        return one


def _is_clearly_better(case: Case, one: Hypothesis, *, least: float = _DIRECTED) -> bool:
    if one.explained is None:
        return False
    declared = case.match.explained if one.by_direction else case.declared
    clearly = 1 - one.explained < one.leaves * (1 - declared)
    return clearly and gain(one.explained, case.unrelated) > least


def _is_at_bounds(case: Case) -> bool:
    if case.seen.bounds is None:
        return False
    if gain(case.match.explained, case.unrelated) > FITTED:
        return False
    low, high = limits_of(case.seen.bounds, case.inputs)
    edge = 0.01 * (high - low)
    return float(((case.inputs <= low + edge) | (case.inputs >= high - edge)).double().mean()) > _AT_BOUNDS


def _what_remains(case: Case) -> str:
    if shown := next((note for note in (ADAM, DECAY) if note in case.seen.notes), ""):
        return shown
    if was_changed(case.seen):
        return "the update was changed before it was shared (noise, pruning, quantisation), or another loss was used"
    dropout = " and that dropout was off" if behind_dropout(case.seen.model) else ""
    return (
        "no other description that was tried explains more; check that these are the weights the client started from"
        f"{dropout}, or use a stronger attack"
    )


def _sorted(tried: list[Hypothesis]) -> tuple[Hypothesis, ...]:
    return tuple(sorted(tried, key=lambda one: -1.0 if one.explained is None else one.explained, reverse=True))


def _percent(share: float) -> str:
    return f"{100 * max(share, 0.0):.0f} %"
