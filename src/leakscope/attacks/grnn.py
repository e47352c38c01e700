"""GRNN: Ren, Deng, Xie (ACM TIST 2022): a generator is trained until its output explains the gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor, nn

from leakscope.errors import UnsuitableError, UsageError, suggest
from leakscope.matching.distances import Distance
from leakscope.matching.engine import Watch
from leakscope.matching.facts import Fact
from leakscope.matching.generators import TwoBranchGenerator
from leakscope.matching.labels import Soft
from leakscope.matching.optimisers import RMSprop
from leakscope.matching.penalties import Penalty, TotalVariation
from leakscope.matching.pooled import read_pooled
from leakscope.matching.recipe import GradientMatching
from leakscope.matching.replays import AsKnown
from leakscope.matching.transport import SquaredPlusNorm, Wasserstein
from leakscope.matching.trial import Trial
from leakscope.types import Knowledge, Observation, Reconstruction, SharedUpdate, Status

PAPER = "Ren, Deng, Xie: GRNN: Generative Regression Neural Network, ACM TIST 2022, arXiv:2105.00529"

_DISTANCES: dict[str, Distance] = {
    "squared+norm": SquaredPlusNorm(),
    "squared+wasserstein": Wasserstein(squared=True),
    "wasserstein": Wasserstein(),
}

# A reading that does not explain the update is tried once more, by the other way.
_GRADIENT_FROM = (0.2, 0.5)


@dataclass(frozen=True)
class SquaredVariation:
    """2 (mean (∂x/∂column)² + mean (∂x/∂row)²): the smoothness term of the authors' code."""

    weight: float
    relative: bool = False

    def value(self, trial: Trial) -> Tensor:
        """Return the mean squared difference of neighbours per group."""
        images = trial.images
        across = (images[..., :, 1:] - images[..., :, :-1]).square().flatten(1).mean(1)
        down = (images[..., 1:, :] - images[..., :-1, :]).square().flatten(1).mean(1)
        return 2 * (across + down)


def falling_late(step: int, steps: int) -> float:
    """The full rate for the first half of the run, then down to 0 in a straight line."""
    return min(1.0, 2 * (1 - step / steps))


@dataclass(frozen=True)
class RefinedGrnn:
    """The generator first, for labels and a picture; then the network is read backwards through its max pooling.

    The second picture is kept where it explains the update better, by the same distance; else, and where the network
    or the update does not fit, the generator's stays, and a note says why. The reading does not start from the
    generator's picture: what it finds is owed to the layers and to a general notion of smoothness.
    """

    search: GradientMatching
    passes: int = 20
    name: str = "grnn-refined"
    paper: str = PAPER

    def __post_init__(self) -> None:
        if not isinstance(self.passes, int) or self.passes < 1:
            raise UsageError(f"attack {self.name!r} needs a whole number passes ≥ 1, got {self.passes!r}")

    @property
    def needs(self) -> frozenset[Knowledge]:
        """As the search."""
        return self.search.needs

    @property
    def steps(self) -> int:
        """Iterations of the generator."""
        return self.search.steps

    def with_steps(self, steps: int) -> RefinedGrnn:
        """The same attack with another number of iterations of the generator."""
        return replace(self, search=replace(self.search, steps=steps))

    def craft(self, model: nn.Module, history: Sequence[SharedUpdate] = ()) -> nn.Module:
        """Hand out the honest model."""
        return model

    def reconstruct(self, seen: Observation, seed: int = 0, *, watch: Watch | None = None) -> Reconstruction:
        """Train the generator, read the layers, return what explains the update better."""
        found = self.search.reconstruct(seen, seed, watch=watch)
        losses: list[str] = []
        for late in _GRADIENT_FROM:
            try:
                inputs = read_pooled(seen, seed, passes=self.passes, gradient_from=late)
            except UnsuitableError as error:
                return replace(found, notes=(*found.notes, f"not refined: {error}"))
            # The generator's soft label is certain in the end; an exact picture deserves an exact one.
            read = replace(found, inputs=inputs, target_probabilities=None, status=Status.OK)
            loss = self.evaluate(seen, read)
            if math.isfinite(loss) and not loss >= found.loss:
                notes = (*found.notes, "refined: read backwards through the max pooling")
                return replace(read, loss=loss, history=(*found.history, loss), notes=notes)
            losses.append(f"{loss:.3g}")
        notes = (*found.notes, f"not refined: reading through max pooling came to worse matches, {', '.join(losses)}")
        return replace(found, notes=notes)

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """The matching distance at a reconstruction, computed afresh by plain differentiation."""
        return self.search.evaluate(seen, reconstruction)

    def informed(self, fact: Fact) -> RefinedGrnn:
        """The same attack comparing updates as someone who knows of the defence does."""
        return replace(self, search=self.search.informed(fact))


def grnn(
    *,
    steps: int = 1_000,
    schedule: Literal["accelerated", "paper"] = "accelerated",
    lr: float | None = None,
    tv: float | None = None,
    distance: Literal["squared+norm", "squared+wasserstein", "wasserstein"] = "squared+norm",
    width: int | None = None,
    latent: int = 128,
    restarts: int = 1,
    num_examples: int | None = None,
) -> GradientMatching:
    """Train the weights of a two-branch generator on ‖d‖² + ‖d‖ + TV; labels come from its label branch.

    `schedule="paper"` is the release: width 32, RMSprop at 1e-4 with momentum 0.99, 1000 iterations, squared TV with
    weight 1e-3 (the authors take 1e-6 for ResNet-18). The default has half the width, ten times the rate, which
    falls in the second half, and the absolute TV that the paper's text asks for. The other distances are ablations:
    with a Wasserstein distance that sorts, beside the square or alone.
    """
    if distance not in _DISTANCES:
        raise UsageError(f"unknown distance {distance!r}.{suggest(distance, _DISTANCES)}")
    penalty: Penalty
    if schedule == "paper":
        optimiser = RMSprop(lr=1e-4 if lr is None else lr)
        penalty = SquaredVariation(1e-3 if tv is None else tv)
        size = 32
    elif schedule == "accelerated":
        optimiser = RMSprop(lr=1e-3 if lr is None else lr, schedule=falling_late)
        penalty = TotalVariation(0.3 if tv is None else tv)
        size = 16
    else:
        raise UsageError(f"schedule must be 'accelerated' or 'paper', got {schedule!r}")
    return GradientMatching(
        name="grnn", paper=PAPER, labels=Soft(),
        candidate=TwoBranchGenerator(latent=latent, width=size if width is None else width), replay=AsKnown(),
        distance=_DISTANCES[distance], penalties=(penalty,) if penalty.weight else (), optimiser=optimiser,
        steps=steps, restarts=restarts, num_examples=num_examples,
        # The paper's rate never falls, so any late iterate may be the best one; a falling rate settles.
        keep="best" if schedule == "paper" else "last",
    )  # fmt: skip


def refined_grnn(*, steps: int = 400, passes: int = 20, num_examples: int | None = None) -> RefinedGrnn:
    """GRNN's generator for `steps` iterations, then `passes` over the first layer's windows; no part of the paper."""
    return RefinedGrnn(grnn(steps=steps, num_examples=num_examples), passes)
