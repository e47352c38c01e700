"""Several rounds of one client matched together: one batch behind updates of different models.

Noise that is drawn afresh in every round averages out of the sum of their distances; examples and labels do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from leakscope.matching.judgement import distance_of_zero
from leakscope.matching.problem import Part
from leakscope.matching.replays import Replay
from leakscope.types import Observation

if TYPE_CHECKING:
    from leakscope.matching.recipe import Recipe


def rounds_of(recipe: Recipe, seen: Observation) -> tuple[Observation, ...]:
    """The updates of one client that are matched together, the latest first."""
    return (seen, *reversed(seen.earlier)) if recipe.joins_rounds else (seen,)


def parts_of(recipe: Recipe, seen: Sequence[Observation]) -> tuple[Part, ...]:
    """One part per round of all victims; together they weigh as much as one round alone."""
    each = zip(*(rounds_of(recipe, one) for one in seen), strict=True)
    matched = [[recipe.matched(one) for one in of_round] for of_round in each]
    return tuple(Part(one, recipe.distance_to(one[0]), weight=1 / len(matched)) for one in matched)


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
    return sum(part.weight * distance_of_zero(part.distance, goal) for part, goal in zip(parts, goals, strict=True))
