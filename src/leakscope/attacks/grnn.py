"""GRNN: Ren, Deng, Xie (ACM TIST 2022): a generator is trained until its output explains the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from leakscope.errors import UsageError, suggest
from leakscope.matching.candidates import TwoBranchGenerator
from leakscope.matching.distances import Distance, SquaredPlusNorm, Wasserstein
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.labels import Soft
from leakscope.matching.optimisers import RMSprop, falling_late
from leakscope.matching.penalties import Penalty, TotalVariation, Trial
from leakscope.matching.presets import ScheduleName, by_schedule
from leakscope.matching.recipe import Recipe
from leakscope.matching.replays import AsKnown
from leakscope.option_ranges import check_attack_option

PAPER = "Ren, Deng, Xie: GRNN: Generative Regression Neural Network, ACM TIST 2022, arXiv:2105.00529"

_DISTANCES: dict[str, Distance] = {
    "squared+norm": SquaredPlusNorm(),
    "squared+wasserstein": Wasserstein(squared=True),
    "wasserstein": Wasserstein(),
}


@dataclass(frozen=True)
class SquaredVariation(Penalty):
    """2 (mean (∂x/∂column)² + mean (∂x/∂row)²): the smoothness term of the authors' code."""

    weight: float
    relative: bool = False

    def value(self, trial: Trial) -> Tensor:
        """Return the mean squared difference of neighbours per group."""
        images = trial.images
        across = (images[..., :, 1:] - images[..., :, :-1]).square().flatten(1).mean(1)
        down = (images[..., 1:, :] - images[..., :-1, :]).square().flatten(1).mean(1)
        return 2 * (across + down)


def grnn(
    *,
    steps: int = 1_000,
    schedule: ScheduleName = "accelerated",
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
    for option, value in (("width", 1 if width is None else width), ("latent", latent)):
        check_attack_option("grnn", option, value)
    optimiser = by_schedule(
        schedule,
        accelerated=RMSprop(lr=1e-3 if lr is None else lr, schedule=falling_late),
        paper=RMSprop(lr=1e-4 if lr is None else lr),
    )
    penalty = by_schedule(
        schedule,
        accelerated=TotalVariation(0.3 if tv is None else tv),
        paper=SquaredVariation(1e-3 if tv is None else tv),
    )
    size = by_schedule(schedule, accelerated=16, paper=32)
    return GradientMatching(
        name="grnn",
        paper=PAPER,
        recipe=Recipe(
            labels=Soft(),
            candidate=TwoBranchGenerator(latent=latent, width=size if width is None else width),
            replay=AsKnown(),
            distance=_DISTANCES[distance],
            penalties=(penalty,) if penalty.weight else (),
            optimiser=optimiser,
        ),
        steps=steps,
        restarts=restarts,
        num_examples=num_examples,
        # The paper's rate never falls, so any late iterate may be the best one; a falling rate settles.
        keep="best" if schedule == "paper" else "last",
    )
