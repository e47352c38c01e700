"""The loop: evaluate, keep the best iterate with its own loss, stop early, name divergence.

Groups are victims × restarts of the same global model, moved in lockstep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from leakscope.matching.candidates import Candidate
from leakscope.matching.distances import Distance, Grouped
from leakscope.matching.optimisers import Evaluation, Optimiser, State, Variables
from leakscope.matching.penalties import Penalty
from leakscope.matching.replays import Replay
from leakscope.matching.routes import PlainRoute, Route, choose_route
from leakscope.matching.trial import Trial
from leakscope.types import Observation, Status

Keep = Literal["best", "last"]

# Called with (step, images of all groups, distances): must not change them.
Watch = Callable[[int, Tensor, Tensor], None]


@dataclass(frozen=True)
class Stop:
    """When to end before `steps`: every group below `distance`, or no progress for `patience` steps."""

    distance: float = 0.0
    patience: int = 0
    progress: float = 1e-3


@dataclass(frozen=True)
class Problem:
    """Everything a run needs. `seen` holds one observation a victim, all of one model.

    `keep` says which iterate a run returns, with its own distance: the one of lowest distance,
    or the last. A run whose rate falls to zero ends better than its lowest distance: on the
    way there noise can fit the update better than the smoother image at the end.
    """

    seen: Sequence[Observation]
    candidate: Candidate
    replay: Replay
    distance: Distance
    penalties: Sequence[Penalty]
    optimiser: Optimiser
    steps: int
    stop: Stop = Stop()
    keep: Keep = "best"


@dataclass(frozen=True)
class Outcome:
    """Best iterate of every group: inputs, targets as used, and the distance *there*."""

    images: Tensor
    targets: Tensor
    distance: Tensor
    history: Tensor
    status: tuple[Status, ...]
    evaluations: int
    route: str


def run(problem: Problem, start: Variables, labels: Tensor | None, *, watch: Watch | None = None) -> Outcome:
    """Optimise all groups from `start`; `labels` [groups, n] are fixed, or None when soft."""
    first = problem.seen[0]
    target = grouped_target(problem, groups=len(start["inputs"]))
    objective = _Objective(problem, target, labels)
    best: _Best | None = None
    trace: list[Tensor] = []
    lows: list[Tensor] = []
    with torch.no_grad():
        states = problem.optimiser.states(
            objective, start, steps=problem.steps, project=lambda v: _projected(problem, first, v)
        )
        for state in states:
            best = _Best.of(state) if best is None else best.next(state, problem.keep)
            trace.append(state.evaluation.distance)
            lows.append(best.distance)
            if watch is not None:
                watch(state.step, problem.candidate.decode(first, state.variables["inputs"]), state.evaluation.distance)
            if _finished(problem.stop, lows, state):
                break
    assert best is not None
    return _outcome(problem, best, torch.stack(trace), target, labels, objective.note)


def grouped_target(problem: Problem, *, groups: int) -> dict[str, Tensor]:
    """Observed updates as [groups, …]; one victim's restarts share memory."""
    restarts = groups // len(problem.seen)
    each = [problem.replay.target(seen) for seen in problem.seen]
    if len(each) == 1:
        return {name: value.expand(groups, *value.shape) for name, value in each[0].items()}
    return {name: torch.stack([update[name] for update in each]).repeat_interleave(restarts, 0) for name in each[0]}


class _Objective:
    """Distance plus penalties as a function of the variables; picks its route at the first call."""

    def __init__(self, problem: Problem, target: Grouped, labels: Tensor | None) -> None:
        self.problem, self.target, self.labels = problem, target, labels
        self.route: Route | None = None
        self.note = ""

    def __call__(self, variables: Variables) -> Evaluation:
        leaves = {name: value.detach().requires_grad_() for name, value in variables.items()}
        with torch.enable_grad():
            images = self.problem.candidate.decode(self.problem.seen[0], leaves["inputs"])
            targets = leaves["labels"].softmax(-1) if self.labels is None else self.labels
        match = self._route(images, targets)(images.detach(), targets.detach(), self.target)
        outputs, cotangents = [images], [match.images]
        if match.targets is not None:
            outputs, cotangents = [images, targets], [match.images, match.targets]
        grads = torch.autograd.grad(outputs, list(leaves.values()), cotangents)
        gradient = dict(zip(leaves, grads, strict=True))
        gradient["inputs"] = self._penalised(leaves["inputs"], targets, gradient["inputs"])
        return Evaluation(match.distance, gradient)

    def _route(self, images: Tensor, targets: Tensor) -> Route:
        if self.route is None:
            self.route, self.note = choose_route(
                self.problem.seen[0], self.problem.replay, self.problem.distance,
                images=images.detach(), targets=targets.detach(), target=self.target,
            )  # fmt: skip
        return self.route

    def _penalised(self, inputs: Tensor, targets: Tensor, matching: Tensor) -> Tensor:
        total = matching
        for penalty in self.problem.penalties:
            with torch.enable_grad():
                images = self.problem.candidate.decode(self.problem.seen[0], inputs)
                trial = Trial(inputs, images, targets, self.problem.seen[0].model)
                (grad,) = torch.autograd.grad(penalty.value(trial).sum(), inputs)
            weight = matching.new_full((len(matching),), penalty.weight)
            if penalty.relative:
                weight = weight * _norms(matching) / _norms(grad).clamp_min(1e-30)
            total = total + grad * weight.reshape(-1, *[1] * (grad.ndim - 1))
        return total


@dataclass(frozen=True)
class _Best:
    """Per group: the iterate to return so far, always a finite one, with its own distance."""

    variables: Variables
    distance: Tensor
    start: Tensor
    last: Tensor

    @classmethod
    def of(cls, state: State) -> _Best:
        distance = state.evaluation.distance.nan_to_num(torch.inf, torch.inf, torch.inf)
        return cls(dict(state.variables), distance, distance, distance)

    def next(self, state: State, keep: Keep) -> _Best:
        distance = state.evaluation.distance.nan_to_num(torch.inf, torch.inf, torch.inf)
        better = torch.isfinite(distance) if keep == "last" else distance < self.distance
        if not bool(better.any()):
            return replace(self, last=distance)
        variables = {
            name: torch.where(better.reshape(-1, *[1] * (value.ndim - 1)), value, self.variables[name])
            for name, value in state.variables.items()
        }
        return _Best(variables, torch.where(better, distance, self.distance), self.start, distance)


def _finished(stop: Stop, lows: list[Tensor], state: State) -> bool:
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


def _outcome(
    problem: Problem, best: _Best, trace: Tensor, target: Grouped, labels: Tensor | None, route: str
) -> Outcome:
    images = problem.candidate.decode(problem.seen[0], best.variables["inputs"])
    targets = best.variables["labels"].softmax(-1) if labels is None else labels
    # The stored loss is computed the plain way at the very iterate that is returned.
    plain = PlainRoute(problem.seen[0], problem.replay, problem.distance)
    exact = torch.stack([
        plain.distance_at(images[g], targets[g], {k: v[g : g + 1] for k, v in target.items()}, create_graph=False)[0]
        for g in range(len(images))
    ]).detach()  # fmt: skip
    status = tuple(_status(best, group) for group in range(len(images)))
    return Outcome(images, targets, exact, trace, status, len(trace), route)


def _status(best: _Best, group: int) -> Status:
    start, low, last = (float(value[group]) for value in (best.start, best.distance, best.last))
    if low == float("inf"):
        return Status.NAN
    # No better than its own random start, or ended above it: this run is no evidence.
    if low > start * (1 - 1e-3) or last > start:
        return Status.DIVERGED
    return Status.OK


def _projected(problem: Problem, seen: Observation, variables: Variables) -> Variables:
    return {**variables, "inputs": problem.candidate.project(seen, variables["inputs"])}


def _norms(value: Tensor) -> Tensor:
    return torch.linalg.vector_norm(value.flatten(1), dim=1)
