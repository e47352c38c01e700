"""The loop: evaluate, keep the best iterate with its own loss, stop early; then judge what was found.

Groups are victims × restarts of the same global model, moved in lockstep. A run is judged because an attack that failed
for a reason of its own shows no protection.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakscope.attack import Watch
from leakscope.errors import UnsuitableError
from leakscope.matching.candidates import Variables
from leakscope.matching.candidates.pixels import unknowns_of
from leakscope.matching.distances import Distance
from leakscope.matching.distances.distance import Grouped
from leakscope.matching.labels.last_layer import last_layer, likeliest
from leakscope.matching.objective import Objective
from leakscope.matching.optimisers import State
from leakscope.matching.problem import Keep, Problem, Stop, plain_distance
from leakscope.types import Observation, Reconstruction, Status

# A run on an update that contradicts what is assumed of it is believed where it explains the update this well.
_EXPLAINED = 0.1
# Evaluations; an optimiser that gives up earlier has hardly left its start.
_A_FEW = 20
_ENDINGS = {
    Status.DIVERGED: ("the distance did not end below where it began: no evidence",),
    Status.NAN: ("no finite distance was ever reached: no evidence",),
}
# A share of the largest entry; rounding and a little noise stay below.
_NOTICEABLE = 0.02


@dataclass(frozen=True)
class Outcome:
    """The returned iterate of every group: inputs, targets as used, and the distance *there*.

    Attributes:
        images: model inputs, [groups, examples, …].
        targets: labels or probabilities, [groups, examples, …].
        distance: Σ γ D at them, by plain differentiation, [groups].
        history: distances along the run, [evaluations, groups].
        status: how every group ended.
        evaluations: gradients of the matching distance, or distances, that were computed.
        routes: how every part was differentiated, and why.
        notes: what the candidate has to tell of every group.
        variables: what was optimised, [groups, …], at the returned iterates.
        originals: pictures before what the client is thought to have done to them, as `images`; None for nothing.
    """

    images: Tensor
    targets: Tensor
    distance: Tensor
    history: Tensor
    status: tuple[Status, ...]
    evaluations: int
    routes: tuple[str, ...]
    notes: tuple[tuple[str, ...], ...]
    variables: Variables
    originals: Tensor | None = None


def run(problem: Problem, start: Variables, labels: Tensor | None, *, watch: Watch | None = None) -> Outcome:
    """Optimise all groups from `start`; `labels` [groups, examples] are fixed, or None when soft."""
    first = problem.first
    objective = Objective(problem, labels, groups=_groups(start))
    best: _Best | None = None
    trace: list[Tensor] = []
    lows: list[Tensor] = []
    with torch.no_grad():
        states = problem.optimiser.states(
            objective, start, steps=problem.steps, project=lambda v: problem.candidate.project(first, v)
        )
        for state in states:
            best = _Best.begin(state) if best is None else best.advance(state, problem.keep)
            trace.append(state.evaluation.distance)
            lows.append(best.distance)
            if watch is not None:
                watch(state.step, problem.candidate.decode(first, state.variables), state.evaluation.distance)
            if _is_finished(problem.stop, lows, state):
                break
    assert best is not None
    return _finish(objective, best, torch.stack(trace))


@dataclass(frozen=True)
class _Best:
    """Per group: the iterate to return so far, always a finite one, with its own distance."""

    variables: Variables
    distance: Tensor
    start: Tensor
    last: Tensor

    @classmethod
    def begin(cls, state: State) -> _Best:
        distance = state.evaluation.distance.nan_to_num(torch.inf, torch.inf, torch.inf)
        return cls(dict(state.variables), distance, distance, distance)

    def advance(self, state: State, keep: Keep) -> _Best:
        distance = state.evaluation.distance.nan_to_num(torch.inf, torch.inf, torch.inf)
        better = torch.isfinite(distance) if keep == "last" else distance < self.distance
        if not bool(better.any()):
            return replace(self, last=distance)
        variables = {
            name: torch.where(better.reshape(-1, *[1] * (value.ndim - 1)), value, self.variables[name])
            for name, value in state.variables.items()
        }
        return _Best(variables, torch.where(better, distance, self.distance), self.start, distance)

    def status(self, group: int) -> Status:
        start, low, last = (float(value[group]) for value in (self.start, self.distance, self.last))
        if low == float("inf"):
            return Status.NAN
        # Not better than its own random start, or ended above it: such a run is not evidence.
        if low > start * (1 - 1e-3) or last > start:
            return Status.DIVERGED
        return Status.OK


def _is_finished(stop: Stop, lows: list[Tensor], state: State) -> bool:
    """`lows` holds the best distances after every step so far."""
    if not bool(state.active.any()):
        return True
    settled = ~state.active | (lows[-1] < stop.distance)
    if bool(settled.all()):
        return True
    if not stop.patience or len(lows) <= stop.patience:
        return False
    before = lows[-1 - stop.patience]
    return bool((lows[-1] > before * (1 - stop.progress)).all())


def _finish(objective: Objective, best: _Best, history: Tensor) -> Outcome:
    problem, variables = objective.problem, best.variables
    images = problem.candidate.decode(problem.first, variables).detach()
    targets = problem.targets(variables, objective.labels).detach()
    groups = range(len(images))
    restarts = len(images) // problem.victims
    # The stored loss is computed the plain way at the very iterate that is returned.
    given = [{name: value[g] for name, value in unknowns_of(variables).items()} for g in groups]
    exact = [plain_distance(problem, images[g], targets[g], victim=g // restarts, given=given[g]) for g in groups]
    return Outcome(
        images,
        targets,
        torch.stack(exact),
        history,
        status=tuple(best.status(g) for g in groups),
        evaluations=objective.evaluations,
        routes=tuple(objective.notes),
        notes=tuple(
            problem.candidate.describe(problem.first, {name: value[g] for name, value in variables.items()})
            for g in groups
        ),
        variables=variables,
        originals=problem.candidate.original(problem.first, variables),
    )


def _groups(variables: Variables) -> int:
    return len(next(iter(variables.values())))


@dataclass(frozen=True)
class Found:
    """A reconstruction and the variables of the group it was decoded from, without a group axis."""

    reconstruction: Reconstruction
    variables: Variables

    def ending(self, status: Status, *remarks: str) -> Found:
        """The same with this status and more notes."""
        notes = (*self.reconstruction.notes, *remarks)
        return replace(self, reconstruction=replace(self.reconstruction, status=status, notes=notes))


def better_of(first: Found, second: Found) -> Found:
    """The attempt that is evidence, or has the lower distance; evaluations of both are counted."""
    chosen = min(first, second, key=_rank)
    spent = first.reconstruction.evaluations + second.reconstruction.evaluations
    return replace(chosen, reconstruction=replace(chosen.reconstruction, evaluations=spent))


def _rank(found: Found) -> tuple[bool, float]:
    loss = found.reconstruction.loss
    return found.reconstruction.status is not Status.OK, loss if loss == loss else math.inf


def distance_of_zero(distance: Distance, target: Grouped) -> float:
    """The distance between one observed update and an update of zeros."""
    return float(distance.value({name: torch.zeros_like(value) for name, value in target.items()}, target)[0])


def best_group(outcome: Outcome, groups: Sequence[int], said: tuple[str, ...]) -> Found:
    """The best of one victim's groups, by observables only: evidence first, then the lowest distance."""
    distances = outcome.distance.nan_to_num(torch.inf, torch.inf, torch.inf)
    chosen = min(groups, key=lambda group: (outcome.status[group] is not Status.OK, float(distances[group])))
    targets = outcome.targets[chosen]
    soft = targets if targets.is_floating_point() else None
    variables = {name: value[chosen].clone() for name, value in outcome.variables.items()}
    found = Reconstruction(
        inputs=outcome.images[chosen].clone(),
        targets=likeliest(targets) if soft is not None else targets.clone(),
        loss=float(outcome.distance[chosen]),
        status=outcome.status[chosen] if bool(torch.isfinite(outcome.distance[chosen])) else Status.NAN,
        history=tuple(outcome.history[:, chosen].tolist()),
        target_probabilities=soft,
        evaluations=outcome.evaluations,
        notes=(*said, *outcome.routes, *outcome.notes[chosen]),
        originals=None if outcome.originals is None else outcome.originals[chosen].detach().clone(),
        unknowns=unknowns_of(variables),
    )
    return Found(found, variables)


def judge(seen: Observation, found: Reconstruction, *, assumed: int, nothing: float) -> tuple[Status, tuple[str, ...]]:
    """The status of a run, and the notes that explain it.

    `assumed` is the number of examples the run rebuilt, `nothing` the distance at an update of zeros.
    """
    contradictions = (*seen.contradictions, *_contradict_count(seen, assumed))
    added = tuple(one for one in contradictions if one not in seen.notes)
    if found.status is not Status.OK:
        return found.status, (*added, *_ENDINGS.get(found.status, ()))
    if found.loss >= nothing and len(found.history) < _A_FEW:
        # A long run that ends there may have been stopped by a defence; a short one never began.
        reason = f"stopped after {len(found.history)} evaluations, no closer than an update of zeros: no evidence"
        return Status.DIVERGED, (*added, reason)
    if contradictions and found.loss > _EXPLAINED * found.history[0]:
        reason = "does not explain an update that contradicts what was declared or assumed of it: no evidence"
        return Status.UNEXPLAINED, (*added, reason)
    return Status.OK, added


def _contradict_count(seen: Observation, assumed: int) -> tuple[str, ...]:
    """A note where the number of examples is only assumed, and the update shows labels of more."""
    if seen.num_examples is not None:
        return ()
    try:
        _weight, bias = last_layer(seen)
    except UnsuitableError:
        return ()
    # Sums over a weight's rows take the bias's place only where no feature is negative: not certain enough here.
    least = 0 if bias is None else int((bias < -_NOTICEABLE * bias.abs().max()).sum())
    if least <= assumed:
        return ()
    return (
        f"rebuilt {assumed}, but the last layer's gradient shows labels of at least {least} examples, or noise; "
        "use an attack that rebuilds several, or a scenario that grants the number",
    )
