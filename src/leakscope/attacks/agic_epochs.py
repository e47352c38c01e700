"""AGIC on several updates of one client: recognise the examples they share, then rebuild them jointly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakscope import rng as random
from leakscope.errors import BadInputError, UsageError
from leakscope.matching.candidates import Pixels
from leakscope.matching.epochs import JointOutcome, JointProblem, Part, joint_distance, run_jointly, shared_examples
from leakscope.matching.recipe import GradientMatching
from leakscope.matching.variables import stacked
from leakscope.types import Observation, Reconstruction, Status


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
class EpochsReconstruction:
    """What several updates gave away together.

    Attributes:
        joint: all different examples; its loss is Σ γ_k D_k over the updates.
        members: for every update, the places of its examples in `joint`.
        alone: the first reconstruction of every update by itself.
    """

    joint: Reconstruction
    members: tuple[tuple[int, ...], ...]
    alone: tuple[Reconstruction, ...]

    def of_update(self, place: int) -> Reconstruction:
        """The examples behind one update, in the order of its own first reconstruction."""
        chosen = list(self.members[place])
        targets = self.joint.targets
        return replace(
            self.joint, inputs=self.joint.inputs[chosen], targets=None if targets is None else targets[chosen]
        )


def reconstruct_jointly(
    attack: GradientMatching, options: EpochOptions, seen: Sequence[Observation], *, seed: int, epochs: Sequence[int]
) -> EpochsReconstruction:
    """Reconstruct each update alone, recognise common examples, and optimise all of them together."""
    check(seen, epochs)
    quick = replace(attack, steps=options.pre_steps)
    alone = tuple(
        quick.reconstruct(one, random.child_seed(seed, attack.name, "alone", place)) for place, one in enumerate(seen)
    )
    members = recognise(alone, epochs=epochs, most=options.most)
    problem = joint_problem(attack, options, seen, alone=alone, members=members, epochs=epochs)
    outcome = run_jointly(_seeded(problem, seed), _start(attack, problem, seed))
    return EpochsReconstruction(_joined(problem, outcome, alone), members, alone)


def evaluate_jointly(
    attack: GradientMatching, options: EpochOptions, seen: Sequence[Observation], found: EpochsReconstruction,
    *, epochs: Sequence[int],
) -> float:  # fmt: skip
    """The joint distance at what was found, computed afresh."""
    problem = joint_problem(attack, options, seen, alone=found.alone, members=found.members, epochs=epochs)
    return float(joint_distance(problem, found.joint.inputs))


def check(seen: Sequence[Observation], epochs: Sequence[int]) -> None:
    """Insist on updates that can be about the same examples."""
    if not seen:
        raise UsageError("reconstruct_epochs needs at least one update, got none")
    if len(epochs) != len(seen) or list(epochs) != sorted(epochs):
        raise UsageError(
            f"epochs must give one number for each of the {len(seen)} updates, not decreasing, got {list(epochs)}"
        )
    for place, one in enumerate(seen):
        if one.input_shape != seen[0].input_shape or one.bounds != seen[0].bounds:
            raise BadInputError(
                f"update {place} is about inputs of shape {list(one.input_shape)} in {one.bounds}, update 0 about "
                f"{list(seen[0].input_shape)} in {seen[0].bounds}; pass updates of one client and one data set"
            )


def recognise(
    alone: Sequence[Reconstruction], *, epochs: Sequence[int], most: float = float("inf")
) -> tuple[tuple[int, ...], ...]:
    """For every update the numbers of its examples; two updates of one epoch never share an example."""
    images, labels = [], []
    for epoch in sorted(set(epochs)):
        places = [place for place, own in enumerate(epochs) if own == epoch]
        images.append(torch.cat([alone[place].inputs for place in places]))
        labels.append(torch.cat([_labels(alone[place]) for place in places]))
    numbers = iter([number for row in shared_examples(images, labels, most=most) for number in row])
    return tuple(tuple(next(numbers) for _ in one.inputs) for one in alone)


def joint_problem(
    attack: GradientMatching, options: EpochOptions, seen: Sequence[Observation], *,
    alone: Sequence[Reconstruction], members: Sequence[Sequence[int]], epochs: Sequence[int],
) -> JointProblem:  # fmt: skip
    """All updates as parts of one problem; each keeps the labels it was read with."""
    if not isinstance(attack.recipe.candidate, Pixels):
        raise UsageError(f"several epochs share pixels, but {attack.name!r} optimises {attack.recipe.candidate!r}")
    parts = tuple(
        Part(
            one, attack.recipe.distance_to(one), torch.tensor(own, device=one.device), _labels(first),
            options.gammas[0] if epoch == epochs[0] else options.gammas[1],
        )
        for one, first, own, epoch in zip(seen, alone, members, epochs, strict=True)
    )  # fmt: skip
    return JointProblem(
        parts,
        attack.recipe.candidate,
        attack.recipe.replay,
        attack.recipe.penalties,
        attack.recipe.optimiser,
        attack.steps,
        attack.keep,
    )


def _labels(found: Reconstruction) -> Tensor:
    assert found.targets is not None  # AGIC reads labels before it optimises
    return found.targets


def _seeded(problem: JointProblem, seed: int) -> JointProblem:
    return replace(problem, optimiser=problem.optimiser.seeded(random.child_seed(seed, "joint", "optimiser")))


def _start(attack: GradientMatching, problem: JointProblem, seed: int) -> dict[str, Tensor]:
    first = problem.parts[0].seen
    count = 1 + max(int(part.members.max()) for part in problem.parts)
    groups = [
        attack.recipe.candidate.start(first, count, random.generator(seed, attack.name, "joint", restart))
        for restart in range(attack.restarts)
    ]
    return attack.recipe.candidate.project(first, stacked(groups))


def _joined(problem: JointProblem, outcome: JointOutcome, alone: Sequence[Reconstruction]) -> Reconstruction:
    def rank(group: int) -> tuple[bool, float]:
        return outcome.status[group] is not Status.OK, float(outcome.distance[group].nan_to_num(torch.inf))

    # Selection by observables only: a run that is evidence first, then the lowest distance.
    chosen = min(range(len(outcome.images)), key=rank)
    labels = torch.zeros(outcome.images.shape[1], dtype=torch.long, device=outcome.images.device)
    for part in reversed(problem.parts):
        labels[part.members] = part.labels
    # What holds of an update by itself, such as the warning of the one-batch approximation, holds of them together.
    said = (*(note for one in alone for note in one.notes), *outcome.routes)
    shared = sum(len(part.members) for part in problem.parts) - len(labels)
    return Reconstruction(
        inputs=outcome.images[chosen].clone(), targets=labels, loss=float(outcome.distance[chosen]),
        status=outcome.status[chosen], history=tuple(outcome.history[:, chosen].tolist()),
        evaluations=len(problem.parts) * len(outcome.history) + sum(one.evaluations for one in alone),
        notes=(
            f"{len(problem.parts)} updates, {len(labels)} different examples, {shared} recognised in a later epoch",
            *dict.fromkeys(said),
        ),
    )  # fmt: skip
