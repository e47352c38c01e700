"""GIAS: Jeon, Kim, Lee, Oh, Ok (NeurIPS 2021): first the latent of a generator, then its weights."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from torch import Tensor

from leakscope.attack import Effort, Watch
from leakscope.matching.candidates import LATENT, Latent, TunedWeights, as_prior
from leakscope.matching.distances import Cosine
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.labels import Inferred
from leakscope.matching.optimisers import Adam, three_drops
from leakscope.matching.penalties import TotalVariation
from leakscope.matching.recipe import Recipe
from leakscope.matching.replays import AsKnown
from leakscope.matching.wrapper import MatchingWrapper
from leakscope.option_ranges import check_attack_option
from leakscope.priors import Prior
from leakscope.types import Observation, Reconstruction, Status

PAPER = "Jeon, Kim, Lee, Oh, Ok: Gradient Inversion with Generative Image Prior, NeurIPS 2021, arXiv:2110.14962"


@dataclass(frozen=True)
class Gias(MatchingWrapper):
    """Two searches in turn: `search` for latents, then `weight_steps` for a generator per image."""

    prior: Prior
    weight_steps: int = 5_000
    weight_lr: float = 1e-3
    name: str = "gias"
    paper: str = PAPER

    def __post_init__(self) -> None:
        check_attack_option("gias", "weight_steps", self.weight_steps)

    @property
    def effort(self) -> Effort:
        """Steps and evaluations of both searches; starts of the first."""
        steps = self.search.steps + self.weight_steps
        return replace(self.search.effort, steps=steps, evaluations=steps)

    def with_effort(self, effort: Effort) -> Gias:
        """The same attack with both searches cut alike."""
        whole = self.search.steps + self.weight_steps
        steps = whole if effort.steps is None else effort.steps
        early = min(steps, max(1, round(steps * self.search.steps / whole)))
        search = self.search.with_effort(replace(effort, steps=early))
        return replace(self, search=search, weight_steps=steps - early)

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        """Search the latents, keep the best start, and let its weights go."""
        found = self.search.find([seen], seed, watch=watch)[0]
        if not self.weight_steps:
            return found.reconstruction
        tuning = self._tuning(found.variables[LATENT])
        late = tuning.run_unjudged(seen, seed, watch=_later(watch, self.search.steps))
        return _join(found.reconstruction, late)

    def _tuning(self, latents: Tensor) -> GradientMatching:
        recipe = replace(
            self.search.recipe,
            candidate=self.search.recipe.candidate.around(TunedWeights(self.prior, latents)),
            optimiser=Adam(lr=self.weight_lr, schedule=three_drops),
        )
        return replace(self.search, recipe=recipe, steps=self.weight_steps, restarts=1)


def gias(
    *,
    prior: Prior | str | os.PathLike[str] | None = None,
    latent_steps: int = 500,
    weight_steps: int = 5_000,
    latent_lr: float = 3e-2,
    weight_lr: float = 1e-3,
    tv: float = 1e-6,
    restarts: int = 3,
    num_examples: int | None = None,
) -> Gias:
    """Match 1 − cos(g(G(z)), t) + TV over the latents z, then over a copy of G's weights per image.

    Args:
        prior: A file, a `Prior`, or "smooth" for slow cosines, which need no training.
        latent_steps: Steps for the latents; the authors take 500 at 32 pixels, 1000 at 128.
        weight_steps: Steps for the weights; 5000 and 8000. 0 stays with what the prior can make.
        latent_lr: Rate for the latents.
        weight_lr: Rate for the weights.
        tv: Weight of total variation.
        restarts: Searches of the latents; the lowest matching distance goes on to the weights.
        num_examples: Examples to assume where the scenario does not say.
    """
    known = as_prior(prior, attack="gias")
    search = GradientMatching(
        name="gias",
        paper=PAPER,
        recipe=Recipe(
            labels=Inferred(),
            candidate=Latent(known),
            replay=AsKnown(),
            distance=Cosine(),
            penalties=(TotalVariation(tv),),
            optimiser=Adam(lr=latent_lr, schedule=three_drops),
        ),
        steps=latent_steps,
        restarts=restarts,
        num_examples=num_examples,
        keep="last",
    )
    return Gias(search, known, weight_steps, weight_lr)


def _later(watch: Watch | None, steps: int) -> Watch | None:
    return None if watch is None else lambda step, images, distance: watch(steps + step, images, distance)


def _join(early: Reconstruction, late: Reconstruction) -> Reconstruction:
    """The second search's result, unless it made the match worse."""
    history, evaluations = early.history + late.history, early.evaluations + late.evaluations
    if late.status is Status.OK and late.loss <= early.loss:
        # Each search starts where the one before ended; the first one's start counts for both.
        return replace(late, history=history, evaluations=evaluations, status=early.status)
    notes = (*early.notes, "tuning the generator's weights did not improve the match: the latents' image is returned")
    return replace(early, history=history, evaluations=evaluations, notes=notes)
