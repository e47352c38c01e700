"""The six attacks of the ATS study: Gao et al. (CVPR 2021), Table of attack configurations.

All know the labels, start from N(0, 1) in normalised coordinates, penalise the total
variation there, and keep the restart with the lowest matching cost.
"""

from __future__ import annotations

from leakscope.matching.candidates import Pixels
from leakscope.matching.distances import L1, Cosine, Distance, SquaredL2
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.labels import Known
from leakscope.matching.optimisers import LBFGS, SGD, Adam, Optimiser, three_drops
from leakscope.matching.penalties import TotalVariation
from leakscope.matching.problem import Keep
from leakscope.matching.recipe import Recipe
from leakscope.matching.replays import AsKnown

PAPER = "Gao et al.: Privacy-preserving Collaborative Learning with Automatic Transformation Search, CVPR 2021"


def lbfgs_l2(*, steps: int = 50, lr: float = 1.0, tv: float = 1e-3, restarts: int = 2) -> GradientMatching:
    """L-BFGS on ‖g − t‖², unboxed. The study's rate of 1e-4 hardly moves; 1 is DLG's."""
    return _study("lbfgs-l2", SquaredL2(), LBFGS(lr=lr), steps=steps, tv=tv, restarts=restarts, box=False, keep="best")


def adam_cosine(*, steps: int = 4_800, lr: float = 0.1, tv: float = 1e-4, restarts: int = 1) -> GradientMatching:
    """Signed Adam on 1 − cos: the study's "inversed"."""
    return _study("adam-cosine", Cosine(), _signed_adam(lr), steps=steps, tv=tv, restarts=restarts)


def lbfgs_cosine(*, steps: int = 300, lr: float = 0.1, tv: float = 1e-4, restarts: int = 16) -> GradientMatching:
    """Signed L-BFGS on 1 − cos. The study's rate of 1e-4 keeps it at its start; 1 oscillates."""
    return _study(
        "lbfgs-cosine", Cosine(), LBFGS(lr=lr, signed=True), steps=steps, tv=tv, restarts=restarts, keep="best"
    )


def adam_l1(*, steps: int = 4_800, lr: float = 0.1, tv: float = 1e-4, restarts: int = 1) -> GradientMatching:
    """Signed Adam on Σ|g − t|."""
    return _study("adam-l1", L1(), _signed_adam(lr), steps=steps, tv=tv, restarts=restarts)


def adam_l2(*, steps: int = 4_800, lr: float = 0.1, tv: float = 1e-4, restarts: int = 1) -> GradientMatching:
    """Signed Adam on Σ‖g − t‖²."""
    return _study("adam-l2", SquaredL2(), _signed_adam(lr), steps=steps, tv=tv, restarts=restarts)


def sgd_cosine(*, steps: int = 4_800, lr: float = 0.01, tv: float = 1e-4, restarts: int = 1) -> GradientMatching:
    """Signed Nesterov SGD on 1 − cos, at the 0.01 the study's code fixes."""
    optimiser = SGD(lr=lr, momentum=0.9, signed=True, schedule=three_drops)
    return _study("sgd-cosine", Cosine(), optimiser, steps=steps, tv=tv, restarts=restarts)


def _signed_adam(lr: float) -> Adam:
    return Adam(lr=lr, signed=True, schedule=three_drops)


def _study(
    name: str,
    distance: Distance,
    optimiser: Optimiser,
    *,
    steps: int,
    tv: float,
    restarts: int,
    box: bool = True,
    keep: Keep = "last",
) -> GradientMatching:
    """A falling rate makes the last iterate the answer, as in the study; L-BFGS has none and keeps the best."""
    return GradientMatching(
        name=name,
        paper=PAPER,
        recipe=Recipe(
            labels=Known(),
            candidate=Pixels(begin="normal", normalised=True, box=box),
            replay=AsKnown(),
            distance=distance,
            penalties=(TotalVariation(tv),),
            optimiser=optimiser,
        ),
        steps=steps,
        restarts=restarts,
        keep=keep,
    )
