"""The loop: evaluate, keep the best iterate with its own loss, stop early.

Groups are victims × restarts of the same global model, moved in lockstep.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from leakscope.attack import Watch
from leakscope.matching.candidates import Variables
from leakscope.matching.candidates.pixels import unknowns_of
from leakscope.matching.checked_run import RouteRefused
from leakscope.matching.objective import Objective
from leakscope.matching.optimisers import State
from leakscope.matching.problem import Keep, Problem, Stop, plain_distance
from leakscope.types import Status


@dataclass(frozen=True)
class Outcome:
    """The returned iterate of every group: inputs, targets as used, and the distance *there*.

    Attributes:
        images: model inputs, [groups, examples, …].
        targets: labels or probabilities, [groups, examples, …].
        distance: Σ γ D at them, by plain differentiation, [groups].
        history: distances along the run, [evaluations, groups].
        status: how every group ended.
        evaluations: gradients of the matching distance, or distances, that the search computed; the checks of its
            route are not among them, `routes` tells how many there were.
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


def run(
    problem: Problem, start: Variables, labels: Tensor | None, *, watch: Watch | None = None, seed: int = 0
) -> Outcome:
    """Optimise all groups from `start`; `labels` [groups, examples] are fixed, or None when soft.

    `seed` draws the evaluations at which a fast route is checked. Where it fails one, the run goes on from the last
    good check by a route that is slower and more exact; what was spent on the other is counted.
    """
    objective = Objective(problem, labels, groups=_groups(start), seed=seed)
    shown = 0
    while True:
        progress = _Progress(watch, shown)
        try:
            best = _optimise(objective, start, progress)
            objective.check_end(best.variables)
            return _finish(objective, best, torch.stack(progress.trace))
        except RouteRefused as refusal:
            objective.checked.begin_again()
            refusal.guard.fall_back(refusal.place, objective.checked.start_groups(), when=refusal.when)
            shown = max(shown, len(progress.trace))


@dataclass
class _Progress:
    """Distances along a run; a watcher hears of every step once, also where the run begins again."""

    watch: Watch | None
    shown: int
    trace: list[Tensor] = field(default_factory=list)

    def add(self, problem: Problem, state: State) -> None:
        self.trace.append(state.evaluation.distance)
        if self.watch is not None and len(self.trace) > self.shown:
            images = problem.candidate.decode(problem.first, state.variables)
            self.watch(state.step, images, state.evaluation.distance)


def _optimise(objective: Objective, start: Variables, progress: _Progress) -> _Best:
    problem = objective.problem
    best: _Best | None = None
    lows: list[Tensor] = []
    with torch.no_grad():
        states = problem.optimiser.states(
            objective, start, steps=problem.steps, project=lambda v: problem.candidate.project(problem.first, v)
        )
        for state in states:
            best = _Best.begin(state) if best is None else best.advance(state, problem.keep)
            lows.append(best.distance)
            progress.add(problem, state)
            if _is_finished(problem.stop, lows, state):
                break
    assert best is not None
    return best


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
