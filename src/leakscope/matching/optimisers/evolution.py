"""CMA-ES: a search by mutation and selection, which needs distances and no gradient.

N. Hansen, A. Ostermeier: Completely derandomized self-adaptation in evolution strategies, 2001;
through the library `cma`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leakscope import rng as random
from leakscope.errors import MissingExtraError, UsageError, install_line
from leakscope.matching.candidates.pixels import Variables
from leakscope.matching.optimisers.first_order import Evaluate, Evaluation, Optimiser, Project, State
from leakscope.networks import NetworkKind

# A small network is measured seven times faster in one pass over many candidates than one by one; a
# large one fills the cache with two, and memory with more.
_NUMBERS, _FEWEST, _USUAL, _MOST = 4_000_000, 2, 16, 32

# Generations; the deviation of the first one hardly changes before.
_LEAST = 50


@dataclass(frozen=True)
class CMAES(Optimiser):
    """One evolution strategy for each group over all its numbers; a step is one generation.

    `sigma` is the deviation of the first generation around the start, `population` the number of
    candidates of a generation, `together` how many of them are measured in one pass; None for as many
    as suit the network. Every state holds the best candidate of its generation.
    """

    population: int = 50
    sigma: float = 0.5
    together: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.population < 4 or not self.sigma > 0 or (self.together is not None and self.together < 1):
            raise UsageError(
                "CMA-ES needs population ≥ 4, sigma > 0 and together ≥ 1, "
                f"got population={self.population}, sigma={self.sigma}, together={self.together}"
            )

    def seeded(self, seed: int) -> CMAES:
        """The same search drawing from `seed`."""
        return replace(self, seed=seed)

    def fitted(self, parameters: int) -> CMAES:
        """The same search with a population measured in parts that suit the network, unless their size was given."""
        if self.together is not None:
            return self
        return replace(self, together=max(_FEWEST, min(_MOST, _NUMBERS // parameters)))

    def evaluations(self, steps: int) -> int:
        """The start, then a population a generation."""
        return 1 + (steps - 1) * self.population

    def least_steps(self, kind: NetworkKind) -> int:
        """Generations, whatever the network: what is searched is the latent of a prior."""
        return _LEAST

    def states(self, evaluate: Evaluate, start: Variables, *, steps: int, project: Project) -> Iterator[State]:
        """Yield the start, then the best of each generation."""
        distance = evaluate.measure(start)
        yield _state(0, start, distance)
        groups = len(distance)
        searches = [self._search(_flat(start, group), group) for group in range(groups)]
        for step in range(1, steps):
            asked = [np.asarray(search.ask()) for search in searches]
            found = _measure(evaluate, start, asked, project=project, together=self.together or _USUAL)
            for search, points, values in zip(searches, asked, found, strict=True):
                # A candidate without a distance must lose, not stop the search.
                search.tell(list(points), np.nan_to_num(values, nan=1e30, posinf=1e30).tolist())
            best = [points[np.nanargmin(_rank(v))] for points, v in zip(asked, found, strict=True)]
            lows = torch.tensor([float(_rank(v).min()) for v in found]).to(distance)
            # Numbered by evaluations, as watchers of a run count.
            yield _state(step * self.population, project(_shape(np.stack(best), start)), lows)

    def _search(self, begin: np.ndarray, group: int) -> Any:
        # Its own source of numbers: the library would otherwise seed numpy's global one.
        draw = np.random.RandomState(random.child_seed(self.seed, "cma-es", group) % 2**32)
        options = {
            "popsize": self.population,
            "randn": draw.randn,
            "seed": np.nan,
            "verbose": -9,
            "verb_log": 0,
            "verb_disp": 0,
        }
        return _library().CMAEvolutionStrategy(begin, self.sigma, options)


def _library() -> Any:
    try:
        import cma
    except ImportError as error:
        raise MissingExtraError(
            f"a search by CMA-ES needs the package cma; install it {install_line('prior')}, "
            "or use the attack with optimiser=adam"
        ) from error
    return cma


def _measure(
    evaluate: Evaluate, start: Variables, asked: list[np.ndarray], *, project: Project, together: int
) -> list[np.ndarray]:
    """Distances of every group's population, [population] each."""
    if len(asked) == 1:
        parts = [
            evaluate.measure(project(_shape(asked[0][first : first + together], start)))
            for first in range(0, len(asked[0]), together)
        ]
        return [torch.cat(parts).double().cpu().numpy()]
    # Several groups have targets of their own: one candidate of each at a time keeps them in step.
    rows = [evaluate.measure(project(_shape(np.stack(member), start))) for member in zip(*asked, strict=True)]
    return list(torch.stack(rows, dim=1).double().cpu().numpy())


def _state(step: int, variables: Variables, distance: Tensor) -> State:
    return State(step, variables, Evaluation(distance, {}), torch.isfinite(distance))


def _rank(values: np.ndarray) -> np.ndarray:
    return np.nan_to_num(values, nan=np.inf)


def _flat(variables: Variables, group: int) -> np.ndarray:
    parts = [value[group].reshape(-1).double().cpu() for value in variables.values()]
    return torch.cat(parts).numpy()


def _shape(points: np.ndarray, like: Variables) -> Variables:
    """Rows of numbers as variables [rows, …] of the shapes and places of `like`."""
    flat, done, found = torch.from_numpy(np.ascontiguousarray(points)), 0, {}
    for name, value in like.items():
        size = value[0].numel()
        found[name] = flat[:, done : done + size].reshape(len(points), *value.shape[1:]).to(value)
        done += size
    return found
