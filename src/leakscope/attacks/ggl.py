"""GGL: Li, Zhang, Liu, Liu (CVPR 2022): what a generator can make, searched without gradients."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from leakscope.client import trainable
from leakscope.errors import UsageError
from leakscope.matching.defended import PerTensor, as_clipped, as_pruned
from leakscope.matching.distances import Distance, SquaredL2
from leakscope.matching.engine import Watch
from leakscope.matching.evolution import CMAES
from leakscope.matching.facts import Bounded, Fact, Sparse
from leakscope.matching.labels import LastLayerSign
from leakscope.matching.latent import Latent, LatentMoments
from leakscope.matching.optimisers import Adam, Optimiser
from leakscope.matching.penalties import Penalty
from leakscope.matching.prior_files import as_prior
from leakscope.matching.recipe import GradientMatching
from leakscope.matching.replays import AsKnown
from leakscope.priors import Prior
from leakscope.types import Observation, Reconstruction

PAPER = (
    "Li, Zhang, Liu, Liu: Auditing Privacy Defenses in Federated Learning via Generative Gradient Leakage, CVPR 2022"
)

# A small network is measured seven times faster in one pass over many candidates than one by one; a
# large one fills the cache with two, and memory with more.
_NUMBERS, _FEWEST, _MOST = 4_000_000, 2, 32


@dataclass(frozen=True)
class GenerativeMatching(GradientMatching):
    """Gradient matching that does to its candidates what it learns was done to the update."""

    def reconstruct_many(
        self, seen: Sequence[Observation], seed: int = 0, *, watch: Watch | None = None
    ) -> list[Reconstruction]:
        """As gradient matching does, with a population measured in parts that suit the network."""
        if not isinstance(self.optimiser, CMAES) or not seen:
            return super().reconstruct_many(seen, seed, watch=watch)
        numbers = sum(value.numel() for value in trainable(seen[0].model).values())
        together = max(_FEWEST, min(_MOST, _NUMBERS // numbers))
        fitting = replace(self, optimiser=replace(self.optimiser, together=together))
        return super(GenerativeMatching, fitting).reconstruct_many(seen, seed, watch=watch)

    def informed(self, fact: Fact) -> GradientMatching:
        """The same attack with the defence applied to candidates too, at the strength the update shows."""
        if isinstance(fact, Sparse):
            return replace(self, distance=as_pruned(self.distance))
        if isinstance(fact, Bounded):
            return replace(self, distance=as_clipped(self.distance))
        return super().informed(fact)


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
        distance = as_clipped(as_pruned(distance))
    if optimiser == "cma-es":
        chosen: Optimiser = CMAES(population=population, sigma=sigma)
        penalties: tuple[Penalty, ...] = ()
        candidate = Latent(value, begin="uniform", reach=reach)
    elif optimiser == "adam":
        chosen, penalties = Adam(lr=lr), (LatentMoments(kl),)
        candidate = Latent(value, begin="normal")
    else:
        raise UsageError(f"optimiser must be 'cma-es' or 'adam', got {optimiser!r}")
    return GenerativeMatching(
        name="ggl", paper=PAPER, labels=LastLayerSign(), candidate=candidate, replay=AsKnown(), distance=distance,
        penalties=penalties, optimiser=chosen, restarts=restarts, num_examples=1,
        steps=(500 if optimiser == "cma-es" else 2_500) if steps is None else steps,
    )  # fmt: skip
