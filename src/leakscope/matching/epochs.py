"""Several updates of one client, matched together: one variable for an example that several of them share.

    minimise over x:   Σ_k γ_k · D(g_k(x[members_k]), t_k) + penalties

Each update has a global model of its own, so each has a route of its own; the optimiser sees one
objective. Groups are restarts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from leakscope.matching.candidates import Pixels
from leakscope.matching.distances import Distance, spread
from leakscope.matching.engine import Keep
from leakscope.matching.optimisers import Evaluation, Optimiser, State
from leakscope.matching.penalties import Penalty
from leakscope.matching.replays import Replay
from leakscope.matching.routes import PlainRoute, Route, choose_route
from leakscope.matching.trial import Trial
from leakscope.matching.variables import Variables
from leakscope.types import Observation, Status


@dataclass(frozen=True)
class Part:
    """One update: which examples are behind it, their labels, and what it counts (γ)."""

    seen: Observation
    distance: Distance
    members: Tensor
    labels: Tensor
    weight: float


@dataclass(frozen=True)
class JointProblem:
    """What is matched, and how."""

    parts: tuple[Part, ...]
    candidate: Pixels
    replay: Replay
    penalties: tuple[Penalty, ...]
    optimiser: Optimiser
    steps: int
    keep: Keep = "last"


@dataclass(frozen=True)
class JointOutcome:
    """Examples of every group, the joint distance there, and how each group ended."""

    images: Tensor
    distance: Tensor
    history: Tensor
    status: tuple[Status, ...]
    routes: tuple[str, ...]


def run_jointly(problem: JointProblem, start: Variables) -> JointOutcome:
    """Optimise `start["inputs"]` [groups, examples, …] for all updates at once."""
    seen = problem.parts[0].seen
    objective = _Joint(problem, len(start["inputs"]))
    kept: State | None = None
    trace: list[Tensor] = []
    with torch.no_grad():
        states = problem.optimiser.states(
            objective, start, steps=problem.steps, project=lambda v: problem.candidate.project(seen, v)
        )
        for state in states:
            trace.append(state.evaluation.distance.nan_to_num(torch.inf, torch.inf, torch.inf))
            kept = state if kept is None else _kept(kept, state, problem.keep)
    assert kept is not None
    images = problem.candidate.decode(seen, kept.variables)
    exact = torch.stack([joint_distance(problem, one) for one in images])
    history = torch.stack(trace)
    return JointOutcome(images, exact, history, tuple(_status(row) for row in history.T), tuple(objective.notes))


def joint_distance(problem: JointProblem, images: Tensor) -> Tensor:
    """Σ_k γ_k D_k at examples [examples, …], by plain differentiation."""
    total = []
    for part in problem.parts:
        target = {name: value[None] for name, value in problem.replay.target(part.seen).items()}
        plain = PlainRoute(part.seen, problem.replay, part.distance)
        value, _leaves = plain.distance_at(images[part.members], part.labels, target, create_graph=False)
        total.append(part.weight * value.detach())
    return torch.stack(total).sum()


class _Joint:
    """The objective; each part picks its route at the first call."""

    def __init__(self, problem: JointProblem, groups: int) -> None:
        self.problem = problem
        self.targets = [
            {name: value.expand(groups, *value.shape) for name, value in problem.replay.target(part.seen).items()}
            for part in problem.parts
        ]
        self.labels = [part.labels.expand(groups, *part.labels.shape) for part in problem.parts]
        self.routes: list[Route] = []
        self.notes: list[str] = []
        self.calls = 0

    def __call__(self, variables: Variables) -> Evaluation:
        inputs = variables["inputs"].detach().requires_grad_()
        with torch.enable_grad():
            images = self.problem.candidate.images(self.problem.parts[0].seen, inputs)
        self._choose(images.detach())
        distance, pulled = images.new_zeros(len(images)), torch.zeros_like(images)
        for part, route, labels, target in zip(self.problem.parts, self.routes, self.labels, self.targets, strict=True):
            match = route(images.detach()[:, part.members], labels, target)
            distance = distance + part.weight * match.distance
            pulled.index_add_(1, part.members, match.images, alpha=part.weight)
        (gradient,) = torch.autograd.grad(images, inputs, pulled)
        self.calls += 1
        return Evaluation(distance, {"inputs": self._penalised(inputs, gradient)})

    def measure(self, variables: Variables) -> Tensor:
        """The joint distances alone."""
        images = self.problem.candidate.images(self.problem.parts[0].seen, variables["inputs"]).detach()
        self._choose(images)
        values = [
            part.weight * route.measure(images[:, part.members], labels, target)
            for part, route, labels, target in zip(
                self.problem.parts, self.routes, self.labels, self.targets, strict=True
            )
        ]
        return torch.stack(values).sum(0)

    def _choose(self, images: Tensor) -> None:
        if self.routes:
            return
        for part, labels, target in zip(self.problem.parts, self.labels, self.targets, strict=True):
            route, note = choose_route(
                part.seen, self.problem.replay, part.distance,
                images=images[:, part.members], targets=labels, target=target,
            )  # fmt: skip
            self.routes.append(route)
            self.notes.append(note)

    def _penalised(self, inputs: Tensor, matching: Tensor) -> Tensor:
        total = matching
        first = self.problem.parts[0].seen
        for penalty in self.problem.penalties:
            with torch.enable_grad():
                images = self.problem.candidate.images(first, inputs)
                trial = Trial(
                    inputs, images, self.labels[0], first.model, seen=(first,), restarts=len(inputs),
                    variables={"inputs": inputs}, step=self.calls, steps=self.problem.steps,
                )  # fmt: skip
                (grad,) = torch.autograd.grad(penalty.value(trial).sum(), inputs)
            weight = matching.new_full((len(matching),), penalty.weight_at(trial))
            if penalty.relative:
                weight = weight * matching.flatten(1).norm(dim=1) / grad.flatten(1).norm(dim=1).clamp_min(1e-30)
            total = total + grad * spread(weight, grad)
        return total


def _kept(kept: State, state: State, keep: Keep) -> State:
    """The state to return so far: the last finite one, or the one of lowest distance, by group."""
    distance, before = state.evaluation.distance, kept.evaluation.distance
    better = torch.isfinite(distance) if keep == "last" else distance < before.nan_to_num(torch.inf)
    inputs = torch.where(spread(better, state.variables["inputs"]), state.variables["inputs"], kept.variables["inputs"])
    evaluation = Evaluation(torch.where(better, distance, before), {})
    return State(state.step, {"inputs": inputs}, evaluation, state.active)


def _status(history: Tensor) -> Status:
    start, low, last = float(history[0]), float(history.min()), float(history[-1])
    if low == float("inf"):
        return Status.NAN
    # No better than its own random start, or ended above it: this run is no evidence.
    return Status.DIVERGED if low > start * (1 - 1e-3) or last > start else Status.OK


def pooled_errors(left: Tensor, right: Tensor) -> Tensor:
    """Mean squared error of every pair after 2 × 2 average pooling, [len(left), len(right)].

    Pooling takes away the noise that two reconstructions of one image do not share.
    """
    one, two = (_pooled(side).flatten(1) for side in (left, right))
    return (one[:, None] - two[None]).square().mean(2)


def match_examples(
    left: Tensor, right: Tensor, *, labels: tuple[Tensor, Tensor], most: float = float("inf")
) -> list[tuple[int, int]]:
    """Greedy one-to-one pairs (i, j) of the same label, the most similar first, none above `most`."""
    errors = pooled_errors(left, right)
    possible = (labels[0][:, None] == labels[1][None]) & (errors <= most)
    errors = errors.masked_fill(~possible, torch.inf)
    pairs: list[tuple[int, int]] = []
    for place in errors.flatten().argsort(stable=True).tolist():
        i, j = divmod(place, errors.shape[1])
        if not bool(possible[i, j]):
            break
        if all(i != a and j != b for a, b in pairs):
            pairs.append((i, j))
    return pairs


def shared_examples(
    images: Sequence[Tensor], labels: Sequence[Tensor], *, most: float = float("inf")
) -> list[list[int]]:
    """Numbers of the examples in each epoch; an example recognised from an earlier epoch keeps its number.

    Every epoch is compared with the first sight of each example: the earliest model leaks most.
    """
    known, known_labels = images[0], labels[0]
    members = [list(range(len(known)))]
    for sight, marks in zip(images[1:], labels[1:], strict=True):
        again = {j: i for i, j in match_examples(known, sight, labels=(known_labels, marks), most=most)}
        fresh = [place for place in range(len(sight)) if place not in again]
        numbers = again | {place: len(known) + count for count, place in enumerate(fresh)}
        members.append([numbers[place] for place in range(len(sight))])
        known, known_labels = torch.cat([known, sight[fresh]]), torch.cat([known_labels, marks[fresh]])
    return members


def _pooled(images: Tensor) -> Tensor:
    if images.ndim != 4 or min(images.shape[-2:]) < 2:
        return images
    return functional.avg_pool2d(images, 2, stride=2)
