"""The objective of a problem as an optimiser sees it: distances of all parts and penalties, with gradients.

The structured route needs no second-order graph and is faster than the plain one, but covers only networks it can take
apart; it is compared with the plain route on the first step and dropped, with a note, where they disagree.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from leakscope.fastgrad import Program, Unsupported, compile_network
from leakscope.matching.candidates import Variables
from leakscope.matching.candidates.pixels import UNKNOWN, is_fixed, unknowns_of
from leakscope.matching.distances import Distance
from leakscope.matching.distances.distance import Grouped
from leakscope.matching.optimisers import Evaluation
from leakscope.matching.penalties import Trial
from leakscope.matching.problem import Match, Part, PlainRoute, Problem, select_group
from leakscope.matching.replays import Replay
from leakscope.types import Observation

# A wrong layer rule is off by far more; float32 differences are off by less.
AGREEMENT_COSINE = 0.999
AGREEMENT_DISTANCE = 1e-3


class Objective:
    """Σ_k γ_k D_k plus penalties; every part picks its route at the first call."""

    def __init__(self, problem: Problem, labels: Tensor | None, *, groups: int) -> None:
        self.problem, self.labels = problem, labels
        self.goals = [group_target(part, problem.replay, groups=groups) for part in problem.parts]
        self.routes: list[Route] = []
        self.notes: list[str] = []
        self.calls = 0
        self.evaluations = 0

    def __call__(self, variables: Variables) -> Evaluation:
        """Distance per group, and the gradient of the whole objective by variable."""
        leaves = {name: value.detach().requires_grad_(not is_fixed(name)) for name, value in variables.items()}
        with torch.enable_grad():
            images = self.problem.candidate.decode(self.problem.first, leaves)
            targets = self.problem.targets(leaves, self.labels)
        match = self._match(images.detach(), targets.detach(), unknowns_of(variables))
        outputs, cotangents = [images], [match.images]
        # Soft labels that were granted are fixed.
        if match.targets is not None and targets.requires_grad:
            outputs, cotangents = [images, targets], [match.images, match.targets]
        gradient = pull_back(outputs, leaves, cotangents, keep=bool(self.problem.penalties))
        gradient |= {UNKNOWN + name: value for name, value in match.given.items() if UNKNOWN + name in leaves}
        gradient = self._add_penalties(self._trial(leaves, images, targets), gradient)
        self.calls += 1
        self.evaluations += len(self.problem.parts)
        return Evaluation(match.distance, gradient)

    def measure(self, variables: Variables) -> Tensor:
        """The distances alone: what a search without gradients needs."""
        with torch.no_grad():
            images = self.problem.candidate.decode(self.problem.first, variables)
            targets = self.problem.targets(variables, self.labels)
        goals, groups = self.goals, len(images)
        if groups != len(next(iter(goals[0].values()))):
            # A population may be larger than the groups the run was started with.
            goals = [{name: widen(value, groups) for name, value in goal.items()} for goal in goals]
            targets = targets if self.labels is None else widen(targets, groups)
        given = unknowns_of(variables)
        self._choose_routes(images, targets, given)
        self.calls += 1
        # Groups of one victim are candidates of one search: each is an evaluation of its own.
        self.evaluations += len(self.problem.parts) * max(1, groups // self.problem.victims)
        each = [
            part.weight * route.measure(part.take(images), part.take(targets), goal, given)
            for part, route, goal in zip(self.problem.parts, self.routes, goals, strict=True)
        ]
        return each[0] if len(each) == 1 else torch.stack(each).sum(0)

    def _match(self, images: Tensor, targets: Tensor, given: Variables) -> Match:
        self._choose_routes(images, targets, given)
        parts = self.problem.parts
        each = [
            route(part.take(images), part.take(targets), goal, given)
            for part, route, goal in zip(parts, self.routes, self.goals, strict=True)
        ]
        if len(parts) == 1 and parts[0].members is None and parts[0].weight == 1:
            return each[0]
        return sum_matches(parts, each, images=images, targets=targets)

    def _choose_routes(self, images: Tensor, targets: Tensor, given: Variables) -> None:
        if self.routes:
            return
        for part, goal in zip(self.problem.parts, self.goals, strict=True):
            route, note = choose_route(
                part.seen[0],
                self.problem.replay,
                part.distance,
                images=part.take(images.detach()),
                targets=part.take(targets.detach()),
                target=goal,
                unknown=bool(given),
            )
            self.routes.append(route)
            self.notes.append(note)

    def _trial(self, leaves: Variables, images: Tensor, targets: Tensor) -> Trial:
        return Trial(
            leaves.get("inputs", images),
            images,
            targets,
            self.problem.first.model,
            seen=tuple(self.problem.parts[0].seen),
            restarts=len(images) // self.problem.victims,
            variables=leaves,
            step=self.calls,
            steps=self.problem.steps,
        )

    def _add_penalties(self, trial: Trial, matching: Variables) -> Variables:
        total = dict(matching)
        for penalty in self.problem.penalties:
            with torch.enable_grad():
                value = penalty.value(trial)
            grads = pull_back([value], trial.variables, [torch.ones_like(value)], keep=True)
            weight = torch.full_like(value.detach(), penalty.weight_at(trial))
            if penalty.relative:
                weight = weight * _length(matching) / _length(grads).clamp_min(1e-30)
            for name, grad in grads.items():
                total[name] = total[name] + grad * weight.reshape(-1, *[1] * (grad.ndim - 1))
        return total


def group_target(part: Part, replay: Replay, *, groups: int) -> Grouped:
    """The part's observed updates as [groups, …]; one victim's restarts share memory."""
    each = [replay.target(seen) for seen in part.seen]
    if len(each) == 1:
        return {name: value.expand(groups, *value.shape) for name, value in each[0].items()}
    restarts = groups // len(each)
    return {name: torch.stack([update[name] for update in each]).repeat_interleave(restarts, 0) for name in each[0]}


def sum_matches(parts: tuple[Part, ...], each: list[Match], *, images: Tensor, targets: Tensor) -> Match:
    """Σ_k γ_k D_k and its derivatives in all examples: those of a shared example add up."""
    distance, by_image = images.new_zeros(len(images)), torch.zeros_like(images)
    by_target = torch.zeros_like(targets) if targets.is_floating_point() else None
    everything = torch.arange(images.shape[1], device=images.device)
    for part, match in zip(parts, each, strict=True):
        members = everything if part.members is None else part.members
        distance = distance + part.weight * match.distance
        by_image.index_add_(1, members, match.images, alpha=part.weight)
        if by_target is not None and match.targets is not None:
            by_target.index_add_(1, members, match.targets, alpha=part.weight)
    return Match(distance, by_image, by_target)


def pull_back(outputs: list[Tensor], leaves: Variables, cotangents: list[Tensor], *, keep: bool) -> Variables:
    """Derivatives in every variable; zero in those that are fixed or play no part."""
    moving = [name for name in leaves if not is_fixed(name)]
    grads = torch.autograd.grad(
        outputs,
        [leaves[name] for name in moving],
        cotangents,
        retain_graph=keep,
        allow_unused=True,
        materialize_grads=True,
    )
    found = dict(zip(moving, grads, strict=True))
    return {name: found[name] if name in found else torch.zeros_like(value) for name, value in leaves.items()}


def widen(value: Tensor, groups: int) -> Tensor:
    """One victim's tensor for any number of groups, without a copy."""
    return value[:1].expand(groups, *value.shape[1:])


def _length(gradient: Variables) -> Tensor:
    """Norm per group: of the images' coordinates where there are any, else of all variables."""
    chosen = [gradient["inputs"]] if "inputs" in gradient else list(gradient.values())
    return torch.linalg.vector_norm(torch.cat([value.flatten(1) for value in chosen], dim=1), dim=1)


class Route(Protocol):
    """(images [groups, n, …], targets) → Match."""

    def __call__(self, images: Tensor, targets: Tensor, target: Grouped, given: Grouped | None = None) -> Match:
        """Evaluate all groups at `images`, `targets` and unknown tensors `given` against the observed `target`."""
        ...

    def measure(self, images: Tensor, targets: Tensor, target: Grouped, given: Grouped | None = None) -> Tensor:
        """The distances alone, at a fraction of the cost."""
        ...


@dataclass(frozen=True)
class StructuredRoute:
    """Layer rules instead of a second-order graph; all groups in one pass."""

    network: Program
    distance: Distance

    def __call__(self, images: Tensor, targets: Tensor, target: Grouped, given: Grouped | None = None) -> Match:
        """Evaluate all groups together; a network with unknown tensors takes the plain route."""
        with torch.no_grad():
            first = self.network.gradients(images, targets)
            value, direction = self.distance.value_and_cotangent(first.gradients, target)
            pulled = self.network.pullback(first, direction)
        return Match(value, *pulled)

    def measure(self, images: Tensor, targets: Tensor, target: Grouped, given: Grouped | None = None) -> Tensor:
        """One pass for all groups, without the pullback."""
        with torch.no_grad():
            return self.distance.value(self.network.gradients(images, targets).gradients, target)


def choose_route(
    seen: Observation,
    replay: Replay,
    distance: Distance,
    *,
    images: Tensor,
    targets: Tensor,
    target: Grouped,
    unknown: bool = False,
) -> tuple[Route, str]:
    """The fastest route that agrees with plain double backward at the first example; and why."""
    plain = PlainRoute(seen, replay, distance)
    if replay.local(seen) is not None:
        return plain, "plain double backward: local steps are simulated"
    if unknown:
        return plain, "plain double backward: unknown tensors of the network are searched for, too"
    # Compiling runs the network, which in training mode would move its running statistics.
    live = any(module.training for module in seen.model.modules())
    model = copy.deepcopy(seen.model) if live else seen.model
    # One example of one group proves the layer rules at the least memory.
    sample, labels = images[:1, :1], targets[:1, :1]
    goal = select_group(target, 0)
    reference: Match | None = None
    for mode in ("differences", "tangents"):
        try:
            network = compile_network(model, loss=seen.loss, example=images[0], mode=mode)
        except Unsupported as reason:
            return plain, f"plain double backward: {reason}"
        outside = [name for name in target if name not in network.names]
        if outside:
            return plain, f"plain double backward: no layer uses parameter {outside[0]}"
        route = StructuredRoute(network, distance)
        reference = plain(sample, labels, goal) if reference is None else reference
        if _agree(route(sample, labels, goal), reference):
            return route, f"structured, {mode}: agrees with double backward on the first step"
    return plain, "plain double backward: the structured route disagreed with it on the first step"


def _agree(found: Match, reference: Match) -> bool:
    gap = (found.distance - reference.distance).abs() / reference.distance.abs().clamp_min(1e-12)
    left, right = found.images.flatten().double(), reference.images.flatten().double()
    cosine = torch.dot(left, right) / (left.norm() * right.norm()).clamp_min(1e-300)
    length = left.norm() / right.norm().clamp_min(1e-300)
    close = bool((gap < AGREEMENT_DISTANCE).all()) and float(cosine) > AGREEMENT_COSINE
    return close and abs(float(length) - 1) < 0.02
