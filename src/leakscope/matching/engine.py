"""The loop: evaluate, keep the best iterate with its own loss, stop early, name divergence.

Groups are victims × restarts of the same global model, moved in lockstep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from leakscope.attack import Watch
from leakscope.matching.candidates import Candidate
from leakscope.matching.distances import Distance, Grouped
from leakscope.matching.label_rules.soft import probabilities
from leakscope.matching.optimisers import Evaluation, Optimiser, State
from leakscope.matching.penalties import Penalty
from leakscope.matching.replays import Replay
from leakscope.matching.routes import PlainRoute, Route, choose_route
from leakscope.matching.trial import Trial
from leakscope.matching.variables import Variables, is_fixed
from leakscope.types import Observation, Status

Keep = Literal["best", "last"]


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
    notes: tuple[tuple[str, ...], ...]
    variables: Variables


def run(problem: Problem, start: Variables, labels: Tensor | None, *, watch: Watch | None = None) -> Outcome:
    """Optimise all groups from `start`; `labels` [groups, n] are fixed, or None when soft."""
    first = problem.seen[0]
    target = grouped_target(problem, groups=_groups(start))
    objective = _Objective(problem, target, labels)
    best: _Best | None = None
    trace: list[Tensor] = []
    lows: list[Tensor] = []
    with torch.no_grad():
        states = problem.optimiser.states(
            objective, start, steps=problem.steps, project=lambda v: problem.candidate.project(first, v)
        )
        for state in states:
            best = _Best.of(state) if best is None else best.next(state, problem.keep)
            trace.append(state.evaluation.distance)
            lows.append(best.distance)
            if watch is not None:
                watch(state.step, problem.candidate.decode(first, state.variables), state.evaluation.distance)
            if _finished(problem.stop, lows, state):
                break
    assert best is not None
    return _outcome(problem, best, torch.stack(trace), target, labels, objective)


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
        self.calls = 0
        self.evaluations = 0

    def __call__(self, variables: Variables) -> Evaluation:
        leaves = {name: value.detach().requires_grad_(not is_fixed(name)) for name, value in variables.items()}
        with torch.enable_grad():
            images = self.problem.candidate.decode(self.problem.seen[0], leaves)
            targets = targets_of(self.problem, leaves, self.labels)
        match = self._route(images, targets)(images.detach(), targets.detach(), self.target)
        outputs, cotangents = [images], [match.images]
        # Soft labels that were granted are fixed.
        if match.targets is not None and targets.requires_grad:
            outputs, cotangents = [images, targets], [match.images, match.targets]
        gradient = _pulled(outputs, leaves, cotangents, keep=bool(self.problem.penalties))
        gradient = self._penalised(self._trial(leaves, images, targets), gradient)
        self.calls += 1
        self.evaluations += 1
        return Evaluation(match.distance, gradient)

    def measure(self, variables: Variables) -> Tensor:
        """The distances alone: what a search without gradients needs."""
        with torch.no_grad():
            images = self.problem.candidate.decode(self.problem.seen[0], variables)
            targets = targets_of(self.problem, variables, self.labels)
        target, groups = self.target, len(images)
        if groups != len(next(iter(target.values()))):
            # A population may be larger than the groups the run was started with.
            target = {name: _widened(value, groups) for name, value in target.items()}
            targets = targets if self.labels is None else _widened(targets, groups)
        route = self._route(images, targets)
        self.calls += 1
        # Groups of one victim are candidates of one search: each is an evaluation of its own.
        self.evaluations += max(1, groups // len(self.problem.seen))
        return route.measure(images, targets, target)

    def _route(self, images: Tensor, targets: Tensor) -> Route:
        if self.route is None:
            self.route, self.note = choose_route(
                self.problem.seen[0], self.problem.replay, self.problem.distance,
                images=images.detach(), targets=targets.detach(), target=self.target,
            )  # fmt: skip
        return self.route

    def _trial(self, leaves: Variables, images: Tensor, targets: Tensor) -> Trial:
        seen = tuple(self.problem.seen)
        return Trial(
            leaves.get("inputs", images), images, targets, seen[0].model, seen=seen,
            restarts=len(images) // len(seen), variables=leaves, step=self.calls, steps=self.problem.steps,
        )  # fmt: skip

    def _penalised(self, trial: Trial, matching: Variables) -> Variables:
        total = dict(matching)
        for penalty in self.problem.penalties:
            with torch.enable_grad():
                value = penalty.value(trial)
            grads = _pulled([value], trial.variables, [torch.ones_like(value)], keep=True)
            weight = torch.full_like(value.detach(), penalty.weight_at(trial))
            if penalty.relative:
                weight = weight * _length(matching) / _length(grads).clamp_min(1e-30)
            for name, grad in grads.items():
                total[name] = total[name] + grad * weight.reshape(-1, *[1] * (grad.ndim - 1))
        return total


def targets_of(problem: Problem, variables: Variables, labels: Tensor | None) -> Tensor:
    """Fixed labels, or probabilities: generated by the candidate, or optimised as logits."""
    if labels is not None:
        return labels
    if problem.candidate.generates_labels:
        return problem.candidate.soft_labels(problem.seen[0], variables)
    return probabilities(variables["labels"])


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
    problem: Problem, best: _Best, trace: Tensor, target: Grouped, labels: Tensor | None, objective: _Objective
) -> Outcome:
    images = problem.candidate.decode(problem.seen[0], best.variables).detach()
    targets = targets_of(problem, best.variables, labels).detach()
    # The stored loss is computed the plain way at the very iterate that is returned.
    plain = PlainRoute(problem.seen[0], problem.replay, problem.distance)
    exact = torch.stack([
        plain.distance_at(images[g], targets[g], {k: v[g : g + 1] for k, v in target.items()}, create_graph=False)[0]
        for g in range(len(images))
    ]).detach()  # fmt: skip
    status = tuple(_status(best, group) for group in range(len(images)))
    notes = tuple(_described(problem, best.variables, group) for group in range(len(images)))
    return Outcome(images, targets, exact, trace, status, objective.evaluations, objective.note, notes, best.variables)


def _described(problem: Problem, variables: Variables, group: int) -> tuple[str, ...]:
    return problem.candidate.describe(problem.seen[0], {name: value[group] for name, value in variables.items()})


def _status(best: _Best, group: int) -> Status:
    start, low, last = (float(value[group]) for value in (best.start, best.distance, best.last))
    if low == float("inf"):
        return Status.NAN
    # No better than its own random start, or ended above it: this run is no evidence.
    if low > start * (1 - 1e-3) or last > start:
        return Status.DIVERGED
    return Status.OK


def _pulled(outputs: list[Tensor], leaves: Variables, cotangents: list[Tensor], *, keep: bool) -> Variables:
    """Derivatives in every variable; zero in those that are fixed or play no part."""
    moving = [name for name in leaves if not is_fixed(name)]
    grads = torch.autograd.grad(
        outputs, [leaves[name] for name in moving], cotangents, retain_graph=keep, allow_unused=True,
        materialize_grads=True,
    )  # fmt: skip
    found = dict(zip(moving, grads, strict=True))
    return {name: found[name] if name in found else torch.zeros_like(value) for name, value in leaves.items()}


def _length(gradient: Variables) -> Tensor:
    """Norm per group: of the images' coordinates where there are any, else of all variables."""
    chosen = [gradient["inputs"]] if "inputs" in gradient else list(gradient.values())
    return torch.linalg.vector_norm(torch.cat([value.flatten(1) for value in chosen], dim=1), dim=1)


def _groups(variables: Variables) -> int:
    return len(next(iter(variables.values())))


def _widened(value: Tensor, groups: int) -> Tensor:
    """One victim's tensor for any number of groups, without a copy."""
    return value[:1].expand(groups, *value.shape[1:])
