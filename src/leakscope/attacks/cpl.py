"""CPL, client privacy leakage: Wei et al. (ESORICS 2020)."""

from __future__ import annotations

from leakscope.matching.candidates import Pattern, Patterned
from leakscope.matching.distances import SquaredL2
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.labels import Inferred
from leakscope.matching.optimisers import LBFGS
from leakscope.matching.penalties import LabelTerm
from leakscope.matching.problem import Stop
from leakscope.matching.recipe import Recipe
from leakscope.matching.replays import AsKnown

PAPER = "Wei et al.: A Framework for Evaluating Client Privacy Leakages in Federated Learning, ESORICS 2020"


def cpl(
    *,
    steps: int = 300,
    label_weight: float = 1e-4,
    pattern: Pattern = "patch",
    tiles: int = 4,
    restarts: int = 1,
    retries: int = 3,
    stop_at: float = 1e-9,
    num_examples: int | None = None,
) -> GradientMatching:
    """Match ‖g(x, y) − t‖² + α ‖softmax f(x) − y‖² by L-BFGS, from a tiled random patch.

    The labels are read off the last layer first. `pattern` is the start: a patch, or a plain colour, which is the
    same in every restart and retry.
    """
    return GradientMatching(
        name="cpl",
        paper=PAPER,
        recipe=Recipe(
            labels=Inferred(),
            candidate=Patterned(pattern, tiles),
            replay=AsKnown(),
            distance=SquaredL2(),
            penalties=(LabelTerm(label_weight),) if label_weight else (),
            optimiser=LBFGS(lr=1.0),
        ),
        steps=steps,
        restarts=restarts,
        retries=retries,
        solved=0.01,
        stop=Stop(distance=stop_at, patience=500, progress=0.05),
        num_examples=num_examples,
    )
