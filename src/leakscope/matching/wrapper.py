"""An attack that runs gradient matching as a part of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from leakscope.attack import Attack, Effort
from leakscope.explanation import MatchedPart
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.recipe import Recipe
from leakscope.types import Knowledge, Observation, Reconstruction


@dataclass(frozen=True)
class MatchingWrapper(Attack):
    """Asks of a scenario, costs and knows what its search does, unless a subclass says otherwise."""

    search: GradientMatching

    @property
    def needs(self) -> frozenset[Knowledge]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the search."""
        return self.search.needs

    def needs_of(self, seen: Observation) -> frozenset[Knowledge]:
        """As the search."""
        return self.search.needs_of(seen)

    @property
    def effort(self) -> Effort:
        """That of the search."""
        return self.search.effort

    def with_effort(self, effort: Effort) -> MatchingWrapper:
        """The same attack around a search of another length."""
        return replace(self, search=self.search.with_effort(effort))

    def least_steps(self, seen: Observation) -> int:
        """That of the search."""
        return self.search.least_steps(seen)

    def matched_part(self, seen: Observation) -> MatchedPart:
        """That of the search."""
        return self.search.matched_part(seen)

    def revised(self, change: Callable[[Recipe], Recipe]) -> MatchingWrapper:
        """The same attack around a search that knows a defence."""
        return replace(self, search=self.search.revised(lambda recipe: one_round(change(recipe))))

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """The matching distance of the search at a reconstruction, computed again."""
        return self.search.evaluate(seen, reconstruction)


def one_round(recipe: Recipe) -> Recipe:
    """What is done around the search is done for one update."""
    return replace(recipe, joins_rounds=False, draws_anew=False)
