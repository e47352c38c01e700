"""AGIC on several updates of one client: recognise the examples they share, then rebuild them jointly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from leakscope import rng as random
from leakscope.attack import Watch
from leakscope.errors import BadInputError, UsageError
from leakscope.matching.candidates import Variables
from leakscope.matching.candidates.pixels import stack_groups
from leakscope.matching.distances import distance_of_zero
from leakscope.matching.engine import Outcome, run
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.judgement import best_group, judge
from leakscope.matching.problem import Part, Problem, plain_distance
from leakscope.types import JointExamples, Observation, Reconstruction

Members = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class EpochOptions:
    """How several updates are used.

    Attributes:
        pre_steps: steps of the reconstruction of each update alone, by which examples are recognised.
        gammas: weight of the first epoch, and of each later one.
        most: pooled mean squared error above which two reconstructions are not one example.
    """

    pre_steps: int
    gammas: tuple[float, float] = (1.0, 0.1)
    most: float = float("inf")


@dataclass(frozen=True)
class Rounds:
    """Updates of one client, oldest first, each with its own global model, and the epoch of each."""

    seen: tuple[Observation, ...]
    epochs: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.seen:
            raise UsageError("reconstruct_epochs needs at least one update, got none")
        if len(self.epochs) != len(self.seen) or list(self.epochs) != sorted(self.epochs):
            raise UsageError(
                f"epochs must give one number for each of the {len(self.seen)} updates, not decreasing, "
                f"got {list(self.epochs)}"
            )
        first = self.seen[0]
        for place, one in enumerate(self.seen):
            if one.input_shape != first.input_shape or one.bounds != first.bounds:
                raise BadInputError(
                    f"update {place} is about inputs of shape {list(one.input_shape)} in {one.bounds}, update 0 about "
                    f"{list(first.input_shape)} in {first.bounds}; pass updates of one client and one data set"
                )

    @classmethod
    def of(cls, seen: Sequence[Observation], epochs: Sequence[int] | None = None) -> Rounds:
        """Updates as given, each an epoch of its own unless `epochs` says otherwise."""
        alone = tuple(replace(one, earlier=()) for one in seen)
        return cls(alone, tuple(range(len(alone)) if epochs is None else epochs))


@dataclass(frozen=True)
class EpochsReconstruction:
    """What several updates gave away together.

    Attributes:
        joint: all different examples; its loss is Σ γ_k D_k over the updates.
        members: for every update, the places of its examples in `joint`.
        alone: the first reconstruction of every update by itself.
    """

    joint: Reconstruction
    members: Members
    alone: tuple[Reconstruction, ...]

    @property
    def examples(self) -> JointExamples:
        """All different examples, and which of them are behind each update."""
        return JointExamples(self.joint.inputs, _labels(self.joint), self.members)

    def of_update(self, place: int) -> Reconstruction:
        """The examples behind one update, in the order of its own first reconstruction."""
        chosen = list(self.members[place])
        return replace(self.joint, inputs=self.joint.inputs[chosen], targets=_labels(self.joint)[chosen])


@dataclass(frozen=True)
class JointAttack:
    """An attack on several updates at once: how each is matched, and how they are used together."""

    attack: GradientMatching
    options: EpochOptions

    def reconstruct(self, rounds: Rounds, *, seed: int, watch: Watch | None = None) -> EpochsReconstruction:
        """Reconstruct each update alone, recognise common examples, and optimise all of them together."""
        quick = replace(self.attack, steps=self.options.pre_steps)
        alone = tuple(
            quick.run_unjudged(one, random.child_seed(seed, self.attack.name, "alone", place))
            for place, one in enumerate(rounds.seen)
        )
        members = recognise(alone, epochs=rounds.epochs, most=self.options.most)
        problem = self.problem(rounds, members)
        problem = replace(problem, optimiser=problem.optimiser.seeded(random.child_seed(seed, "joint", "optimiser")))
        labels = join_labels(alone, members).expand(self.attack.restarts, -1)
        outcome = run(problem, self._start(problem, labels.shape[1], seed), labels, watch=watch, seed=seed)
        return EpochsReconstruction(_choose(outcome, alone), members, alone)

    def reconstruct_latest(self, rounds: Rounds, *, seed: int, watch: Watch | None = None) -> Reconstruction:
        """The examples behind the latest update, from all of them; judged as the run of one update is."""
        together = self.reconstruct(rounds, seed=seed, watch=watch)
        found = replace(together.of_update(-1), joint=together.examples)
        parts, replay = self.problem(rounds, together.members).parts, self.attack.recipe.replay
        goals = [{name: value[None] for name, value in replay.target(part.seen[0]).items()} for part in parts]
        nothing = sum(
            part.weights[0] * distance_of_zero(part.distance, goal) for part, goal in zip(parts, goals, strict=True)
        )
        # An update that is not what it was declared to be spoils what is found from all of them.
        against = tuple(dict.fromkeys(one for seen in rounds.seen for one in seen.contradictions))
        latest = replace(rounds.seen[-1], notes=found.notes, contradictions=against)
        status, remarks = judge(latest, found, assumed=len(found.inputs), nothing=nothing)
        return replace(found, status=status, notes=(*found.notes, *remarks))

    def evaluate(self, rounds: Rounds, examples: JointExamples) -> float:
        """Σ γ_k D_k at `examples`, computed again by plain differentiation."""
        if len(examples.members) != len(rounds.seen):
            raise BadInputError(
                f"a reconstruction from {len(examples.members)} updates cannot be evaluated on {len(rounds.seen)}; "
                "pass the observation it was made from, with its earlier rounds"
            )
        problem = self.problem(rounds, examples.members)
        return float(plain_distance(problem, examples.inputs, examples.targets))

    def evaluate_latest(self, rounds: Rounds, found: Reconstruction, examples: JointExamples) -> float:
        """The same with `found` in place of the examples behind the latest update."""
        own = list(examples.members[-1])
        inputs, targets = examples.inputs.clone(), examples.targets.clone()
        inputs[own], targets[own] = found.inputs, _labels(found)
        return self.evaluate(rounds, JointExamples(inputs, targets, examples.members))

    def problem(self, rounds: Rounds, members: Members) -> Problem:
        """All updates as parts of one problem."""
        attack, recipe = self.attack, self.attack.recipe
        first, later = self.options.gammas
        weights = [first if epoch == rounds.epochs[0] else later for epoch in rounds.epochs]
        parts = tuple(
            Part([one], recipe.distance_to(one), torch.tensor(own, device=one.device), (weight,))
            for one, own, weight in zip(map(recipe.matched, rounds.seen), members, weights, strict=True)
        )
        return Problem(
            parts, recipe.candidate, recipe.replay, recipe.penalties, recipe.optimiser, attack.steps, keep=attack.keep
        )

    def _start(self, problem: Problem, count: int, seed: int) -> Variables:
        name, candidate = self.attack.name, problem.candidate
        groups = [
            candidate.start(problem.first, count, random.generator(seed, name, "joint", restart))
            for restart in range(self.attack.restarts)
        ]
        return candidate.project(problem.first, stack_groups(groups))


def recognise(alone: Sequence[Reconstruction], *, epochs: Sequence[int], most: float = float("inf")) -> Members:
    """For every update the numbers of its examples; two updates of one epoch never share an example."""
    images, labels = [], []
    for epoch in sorted(set(epochs)):
        places = [place for place, own in enumerate(epochs) if own == epoch]
        images.append(torch.cat([alone[place].inputs for place in places]))
        labels.append(torch.cat([_labels(alone[place]) for place in places]))
    numbers = iter([number for row in number_examples(images, labels, most=most) for number in row])
    return tuple(tuple(next(numbers) for _ in one.inputs) for one in alone)


def join_labels(alone: Sequence[Reconstruction], members: Members) -> Tensor:
    """The label of every different example; only examples of one label were recognised as one."""
    labels = _labels(alone[0]).new_zeros(1 + max(place for own in members for place in own))
    for one, own in zip(alone, members, strict=True):
        labels[list(own)] = _labels(one)
    return labels


def _labels(found: Reconstruction) -> Tensor:
    assert found.targets is not None  # AGIC reads labels before it optimises
    return found.targets


def _choose(outcome: Outcome, alone: Sequence[Reconstruction]) -> Reconstruction:
    """The best restart, with what was said of each update by itself."""
    # What holds of an update by itself, such as the warning of the one-batch approximation, holds of them together.
    said = tuple(note for one in alone for note in one.notes)
    found = best_group(outcome, range(len(outcome.images)), said).reconstruction
    count, spent = len(found.inputs), sum(one.evaluations for one in alone)
    shared = sum(len(one.inputs) for one in alone) - count
    summary = f"{len(alone)} updates, {count} different examples, {shared} recognised in a later epoch"
    return replace(found, evaluations=found.evaluations + spent, notes=(summary, *dict.fromkeys(found.notes)))


def pooled_errors(left: Tensor, right: Tensor) -> Tensor:
    """Mean squared error of every pair after 2 × 2 average pooling, [len(left), len(right)].

    Pooling takes away the noise that two reconstructions of one image do not share.
    """
    one, two = (_pool(side).flatten(1) for side in (left, right))
    return (one[:, None] - two[None]).square().mean(2)


def match_examples(
    left: Tensor, right: Tensor, *, labels: tuple[Tensor, Tensor], most: float = torch.inf
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


def number_examples(images: Sequence[Tensor], labels: Sequence[Tensor], *, most: float = torch.inf) -> list[list[int]]:
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


def _pool(images: Tensor) -> Tensor:
    if images.ndim != 4 or min(images.shape[-2:]) < 2:
        return images
    return functional.avg_pool2d(images, 2, stride=2)
