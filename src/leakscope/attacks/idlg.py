"""iDLG: Zhao, Mopuri, Bilen (2020): the label is read off exactly, only the image is optimised."""

from __future__ import annotations

from leakscope.matching.candidates import Pixels
from leakscope.matching.distances import SquaredL2
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.labels import LastLayerSign
from leakscope.matching.optimisers import LBFGS
from leakscope.matching.problem import Stop
from leakscope.matching.recipe import Recipe
from leakscope.matching.replays import AsKnown

PAPER = "Zhao, Mopuri, Bilen: iDLG: Improved Deep Leakage from Gradients, arXiv:2001.02610"


def idlg(*, steps: int = 300, restarts: int = 1, retries: int = 3, stop_at: float = 1e-9) -> GradientMatching:
    """DLG with the label from the sign of the last layer's gradient; one example per update."""
    return GradientMatching(
        name="idlg",
        paper=PAPER,
        recipe=Recipe(
            labels=LastLayerSign(),
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
        num_examples=1,
    )
