"""The objective of a problem as an optimiser sees it: distances of all parts and penalties, with gradients.

Every part picks its route at the first call. Some of the later calls, and the end of a run, check it; a check that
fails raises `RouteRefused`, and the run goes on from the last evaluation that was found good (`CheckedRun`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from leakscope.matching.candidates import Variables
from leakscope.matching.candidates.pixels import UNKNOWN, is_fixed, unknowns_of
from leakscope.matching.checked_run import CheckedRun, RouteRefused
from leakscope.matching.distances.distance import Grouped
from leakscope.matching.optimisers import Evaluation
from leakscope.matching.penalties import Trial
from leakscope.matching.problem import Match, Part, Problem
from leakscope.matching.replays import Replay
from leakscope.matching.routes import Guard
from leakscope.matching.trust import CheckPoint


class Objective:
    """Σ_k γ_k D_k plus penalties."""

    def __init__(self, problem: Problem, labels: Tensor | None, *, groups: int, seed: int = 0) -> None:
        self.problem, self.labels = problem, labels
        self.goals = [group_target(part, problem.replay, groups=groups) for part in problem.parts]
        self.guards = [Guard(part.seen[0], problem.replay, part.distance, seed=seed) for part in problem.parts]
        self.checked = CheckedRun(problem.steps, groups, seed)
        self.evaluations = 0
        self._chosen = False

    @property
    def notes(self) -> list[str]:
        """How every part was differentiated, and why."""
        return [guard.note for guard in self.guards] if self._chosen else []

    def __call__(self, variables: Variables) -> Evaluation:
        """Distance per group, and the gradient of the whole objective by variable."""
        known = self.checked.recall(Evaluation)
        if known is not None:
            return known
        found = self._evaluate(variables)
        self.evaluations += len(self.problem.parts)
        return self.checked.keep(found, worth=any(guard.is_fast for guard in self.guards))

    def check_end(self, variables: Variables) -> None:
        """Check the routes at the iterate that a run returns; raises `RouteRefused`."""
        if not self.checked.used_gradients:
            return
        with torch.no_grad():
            images = self.problem.candidate.decode(self.problem.first, variables)
            targets = self.problem.targets(variables, self.labels)
        for place, guard in zip(self._places(images, targets), self.guards, strict=True):
            if not guard.check(place, self.checked.end_groups()):
                raise RouteRefused(guard, place, "at the end")

    def _evaluate(self, variables: Variables) -> Evaluation:
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
        return Evaluation(match.distance, gradient)

    def measure(self, variables: Variables) -> Tensor:
        """The distances alone: what a search without gradients needs."""
        known = self.checked.recall(Tensor)
        if known is not None:
            return known
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
        # Groups of one victim are candidates of one search: each is an evaluation of its own.
        self.evaluations += len(self.problem.parts) * max(1, groups // self.problem.victims)
        each = [
            part.weigh(guard.route.measure(part.take(images), part.take(targets), goal, given))
            for part, guard, goal in zip(self.problem.parts, self.guards, goals, strict=True)
        ]
        total = each[0] if len(each) == 1 else torch.stack(each).sum(0)
        return self.checked.keep(total, worth=any(guard.is_fast for guard in self.guards))

    def _match(self, images: Tensor, targets: Tensor, given: Variables) -> Match:
        self._choose_routes(images, targets, given)
        parts = self.problem.parts
        each = [
            guard.route(part.take(images), part.take(targets), goal, given)
            for part, guard, goal in zip(parts, self.guards, self.goals, strict=True)
        ]
        if self.checked.is_due():
            self._check(images, targets, each)
        if len(parts) == 1 and parts[0].members is None and parts[0].weights == (1.0,):
            return each[0]
        return sum_matches(parts, each, images=images, targets=targets)

    def _check(self, images: Tensor, targets: Tensor, each: list[Match]) -> None:
        places = self._places(images, targets)
        for place, guard, found in zip(places, self.guards, each, strict=True):
            if not guard.check(place, self.checked.groups_between(), found=found):
                raise RouteRefused(guard, place, f"at evaluation {self.checked.calls + 1}")
        self.checked.approve()

    def _places(self, images: Tensor, targets: Tensor) -> list[CheckPoint]:
        # A population may have more groups than the run was started with: those of the run are compared.
        own = min(len(images), len(next(iter(self.goals[0].values()))))
        return [
            CheckPoint(
                part.take(images[:own].detach()),
                part.take(targets[:own].detach()),
                {name: value[:own] for name, value in goal.items()},
            )
            for part, goal in zip(self.problem.parts, self.goals, strict=True)
        ]

    def _choose_routes(self, images: Tensor, targets: Tensor, given: Variables) -> None:
        if self._chosen:
            return
        self._chosen = True
        for place, guard in zip(self._places(images, targets), self.guards, strict=True):
            if given:
                guard.stay_plain("unknown tensors of the network are searched for, too")
            else:
                guard.choose(place, self.checked.start_groups())

    def _trial(self, leaves: Variables, images: Tensor, targets: Tensor) -> Trial:
        return Trial(
            leaves.get("inputs", images),
            images,
            targets,
            self.problem.first.model,
            seen=tuple(self.problem.parts[0].seen),
            restarts=len(images) // self.problem.victims,
            variables=leaves,
            step=self.checked.calls,
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
    by_given: dict[str, Tensor] = {}
    everything = torch.arange(images.shape[1], device=images.device)
    for part, match in zip(parts, each, strict=True):
        members = everything if part.members is None else part.members
        distance = distance + part.weigh(match.distance)
        by_image.index_add_(1, members, part.weigh(match.images))
        if by_target is not None and match.targets is not None:
            by_target.index_add_(1, members, part.weigh(match.targets))
        # Unknown tensors are the same behind all parts.
        for name, value in match.given.items():
            by_given[name] = by_given.get(name, 0) + part.weigh(value)
    return Match(distance, by_image, by_target, by_given)


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
