"""Deep leakage from gradients: Zhu, Liu, Han (NeurIPS 2019), and its Adam variant."""

from __future__ import annotations

from leakscope.matching.candidates import Pixels
from leakscope.matching.distances import SquaredL2
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.labels import Inferred, Soft
from leakscope.matching.optimisers import LBFGS, Adam
from leakscope.matching.problem import Stop
from leakscope.matching.recipe import Recipe
from leakscope.matching.replays import AsKnown

PAPER = "Zhu, Liu, Han: Deep Leakage from Gradients, NeurIPS 2019, arXiv:1906.08935"
ADAM_PAPER = "Zhu, Liu, Han (arXiv:1906.08935), optimised with Adam as in Xu et al. (AGIC), SRDS 2022"


def dlg(
    *, steps: int = 300, restarts: int = 1, retries: int = 3, stop_at: float = 1e-9, num_examples: int | None = None
) -> GradientMatching:
    """Match ‖g(x, softmax(l)) − t‖² over image and label together, by L-BFGS without line search.

    `steps` counts the paper's iterations, of up to 20 evaluations each. A run that diverges is
    started again up to `retries` times, as the authors do by hand; so is one that stalls.
    """
    return GradientMatching(
        name="dlg",
        paper=PAPER,
        recipe=Recipe(
            labels=Soft(),
            candidate=Pixels(begin="normal", box=False),
            replay=AsKnown(),
            distance=SquaredL2(),
            optimiser=LBFGS(lr=1.0),
        ),
        steps=steps,
        restarts=restarts,
        retries=retries,
        solved=0.01,
        stop=Stop(distance=stop_at, patience=500, progress=0.05),
        num_examples=num_examples,
    )


def dlg_adam(
    *, steps: int = 2_000, lr: float = 0.1, restarts: int = 1, num_examples: int | None = None
) -> GradientMatching:
    """The same distance by Adam; labels granted or inferred; local steps are simulated."""
    return GradientMatching(
        name="dlg-adam",
        paper=ADAM_PAPER,
        recipe=Recipe(
            labels=Inferred(),
            # Noise as large as pixels is far outside the data of a network that normalises, and Adam stalls there.
            candidate=Pixels(begin="normal", normalised=True, box=False),
            replay=AsKnown(),
            distance=SquaredL2(),
            optimiser=Adam(lr=lr),
        ),
        steps=steps,
        restarts=restarts,
        stop=Stop(distance=1e-9),
        num_examples=num_examples,
    )
