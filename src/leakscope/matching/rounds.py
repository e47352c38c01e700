"""Several rounds of one client matched together: one batch behind updates of different models.

Noise that is drawn afresh in every round averages out of the sum of their distances; examples and labels do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from leakscope.matching.distances import Distance, distance_of_zero
from leakscope.matching.problem import Part
from leakscope.matching.replays import Replay
from leakscope.types import Observation

if TYPE_CHECKING:
    from leakscope.matching.recipe import Recipe


def rounds_of(recipe: Recipe, seen: Observation) -> tuple[Observation, ...]:
    """The updates of one client that are matched together, the latest first."""
    return (seen, *reversed(seen.earlier)) if recipe.matches_rounds else (seen,)


def parts_of(recipe: Recipe, seen: Sequence[Observation]) -> tuple[Part, ...]:
    """One part per round of all victims; together they weigh as much as one round alone.

    A round counts by how clearly its update stands out of the noise: training makes gradients shorter, and the noise
    not, so that the late rounds of a client whose examples are learnt hold little else.
    """
    each = zip(*(rounds_of(recipe, one) for one in seen), strict=True)
    matched = [[recipe.matched(one) for one in of_round] for of_round in each]
    distances = [recipe.distance_to(one[0]) for one in matched]
    if len(matched) == 1:
        return (Part(matched[0], distances[0]),)
    clear = torch.stack([_clearness(recipe.replay, *pair) for pair in zip(matched, distances, strict=True)])
    weights = (clear / clear.sum(0)).tolist()
    rounds = zip(matched, distances, weights, strict=True)
    return tuple(Part(one, distance, weights=tuple(own)) for one, distance, own in rounds)


def _clearness(replay: Replay, seen: Sequence[Observation], distance: Distance) -> Tensor:
    """How clearly the update of every victim stands out of its noise in one round."""
    goals = [{name: value[None] for name, value in replay.target(one).items()} for one in seen]
    return torch.cat([distance.clearness(goal) for goal in goals]).cpu()


def average_of(recipe: Recipe, seen: Observation) -> Observation:
    """The latest observation with the mean update of all rounds: what labels are read off."""
    rounds = rounds_of(recipe, seen)
    names = [name for name in seen.update.tensors if all(name in one.update.tensors for one in rounds)]
    if len(rounds) == 1 or not names:
        return seen
    mean = {name: torch.stack([one.update.tensors[name] for one in rounds]).mean(0) for name in names}
    return replace(seen, update=replace(seen.update, tensors=mean))


def distance_to_nothing(parts: Sequence[Part], replay: Replay) -> float:
    """Σ γ D of the first victim's rounds and updates of zeros."""
    goals = [{name: value[None] for name, value in replay.target(part.seen[0]).items()} for part in parts]
    return sum(part.weights[0] * distance_of_zero(part.distance, goal) for part, goal in zip(parts, goals, strict=True))
