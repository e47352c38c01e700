"""GGL: Li, Zhang, Liu, Liu (CVPR 2022): what a generator can make, searched without gradients."""

from __future__ import annotations

import os
from typing import Literal

from leakscope.errors import UsageError
from leakscope.matching.candidates import Latent, as_prior
from leakscope.matching.distances import Distance, PerTensor, SquaredL2
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.labels import LastLayerSign
from leakscope.matching.optimisers import CMAES, Adam, Optimiser
from leakscope.matching.penalties import LatentMoments, Penalty
from leakscope.matching.recipe import Recipe
from leakscope.matching.replays import AsKnown
from leakscope.priors import Prior

PAPER = (
    "Li, Zhang, Liu, Liu: Auditing Privacy Defenses in Federated Learning via Generative Gradient Leakage, CVPR 2022"
)


def ggl(
    *,
    prior: Prior | str | os.PathLike[str] | None = None,
    optimiser: Literal["cma-es", "adam"] = "cma-es",
    steps: int | None = None,
    population: int = 50,
    sigma: float = 0.5,
    reach: float = 3.0,
    lr: float = 0.1,
    kl: float = 0.1,
    aware: bool = False,
    restarts: int = 1,
) -> GradientMatching:
    """Match Σ‖g(G(z), ŷ) − t‖² / #tensors over the latent z of a prior, with the label read off by its sign.

    Args:
        prior: A file, a `Prior`, or "smooth" for slow cosines, which need no training.
        optimiser: "cma-es", or "adam" with the KL term on the latent's moments.
        steps: Generations of CMA-ES (500), or steps of Adam (2500).
        population: Candidates of a generation.
        sigma: Deviation of the first generation.
        reach: CMA-ES searches u with z = reach · tanh(u / reach); the paper's is 1.
        lr: Rate of Adam.
        kl: Weight of the KL term, for Adam.
        aware: Suspect clipping, pruning and masking, and estimate each from the update.
        restarts: Searches from different starts; the lowest matching distance wins.
    """
    value = as_prior(prior, attack="ggl")
    distance: Distance = PerTensor(SquaredL2())
    if aware:
        distance = distance.masked().clipped()
    if optimiser == "cma-es":
        chosen: Optimiser = CMAES(population=population, sigma=sigma)
        penalties: tuple[Penalty, ...] = ()
        candidate = Latent(value, begin="uniform", reach=reach)
    elif optimiser == "adam":
        chosen, penalties = Adam(lr=lr), (LatentMoments(kl),)
        candidate = Latent(value, begin="normal")
    else:
        raise UsageError(f"optimiser must be 'cma-es' or 'adam', got {optimiser!r}")
    return GradientMatching(
        name="ggl",
        paper=PAPER,
        recipe=Recipe(
            labels=LastLayerSign(),
            candidate=candidate,
            replay=AsKnown(),
            distance=distance,
            penalties=penalties,
            optimiser=chosen,
        ),
        steps=(500 if optimiser == "cma-es" else 2_500) if steps is None else steps,
        restarts=restarts,
        num_examples=1,
    )
