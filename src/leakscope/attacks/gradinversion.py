"""GradInversion: Yin et al. (CVPR 2021)."""

from __future__ import annotations

from leakscope.matching.candidates import Pixels
from leakscope.matching.distances import SquaredL2
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.labels import DistinctFirst
from leakscope.matching.optimisers import Adam, Langevin, warm_cosine
from leakscope.matching.penalties import BatchNormPrior, GroupConsistency, InputNorm, Penalty, TotalVariation
from leakscope.matching.recipe import Recipe
from leakscope.matching.replays import AsKnown

PAPER = "Yin et al.: See through Gradients: Image Batch Recovery via GradInversion, CVPR 2021, arXiv:2104.07586"


def gradinversion(
    *,
    steps: int = 2_000,
    seeds: int = 4,
    lr: float = 0.1,
    noise: float = 0.2,
    tv: float | None = None,
    norm: float = 1e-3,
    batch_norm: float = 0.1,
    group: float = 0.1,
    num_examples: int | None = None,
) -> GradientMatching:
    """Match ‖g − t‖² with priors on smoothness, norm, batch-norm statistics and agreement of `seeds` runs.

    Adam with Langevin noise; the weights are relative to the matching gradient; that of smoothness, unless
    given, fits the number and size of the images. The statistics are
    those of the batch where the scenario grants them or sent buffers tell them, those of public inputs where such were
    declared, and the network's running ones otherwise.
    """
    penalties: tuple[Penalty, ...] = (
        TotalVariation(0.5 if tv is None else tv, relative=True, fitted=tv is None),
        InputNorm(norm, relative=True),
        BatchNormPrior(batch_norm, relative=True),
        GroupConsistency(group, relative=True, begin=0.25),
    )
    return GradientMatching(
        name="gradinversion",
        paper=PAPER,
        recipe=Recipe(
            labels=DistinctFirst(),
            candidate=Pixels(begin="normal", normalised=True),
            replay=AsKnown(),
            distance=SquaredL2(),
            penalties=tuple(one for one in penalties if one.weight > 0),
            optimiser=Langevin(Adam(lr=lr, schedule=warm_cosine), noise=noise),
        ),
        steps=steps,
        restarts=seeds,
        num_examples=num_examples,
        keep="last",
    )
