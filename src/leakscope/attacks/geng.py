"""Towards general deep leakage: Geng et al. (2021)."""

from __future__ import annotations

from typing import Literal

from leakscope.errors import UsageError
from leakscope.matching.candidates import Pixels
from leakscope.matching.distances import SquaredL2
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.labels import Inferred, RuleName
from leakscope.matching.optimisers import LBFGS, Adam, linear
from leakscope.matching.penalties import Clipping, Scaling
from leakscope.matching.problem import Stop
from leakscope.matching.recipe import Recipe
from leakscope.matching.replays import OneGradient

PAPER = "Geng et al.: Towards General Deep Leakage in Federated Learning, 2021, arXiv:2110.09074"


def geng(
    *,
    steps: int = 300,
    optimiser: Literal["lbfgs", "adam"] = "lbfgs",
    labels: RuleName = "geng",
    clip: float = 1e-2,
    scale: float = 1e-3,
    lr: float | None = None,
    restarts: int = 1,
    retries: int = 3,
    stop_at: float = 1e-9,
    num_examples: int | None = None,
) -> GradientMatching:
    """Match one gradient of all examples, a delta divided by −rate × steps, with range terms on the image.

    ‖g(x, y) − t‖² + clip · mean(x − clipped x)² + scale · mean(x − stretched x)², labels counted beforehand.
    """
    if optimiser not in ("lbfgs", "adam"):
        raise UsageError(f"optimiser must be 'lbfgs' or 'adam', got {optimiser!r}")
    with_memory = optimiser == "lbfgs"
    rate = lr if lr is not None else 1.0 if with_memory else 0.1
    return GradientMatching(
        name="geng",
        paper=PAPER,
        recipe=Recipe(
            labels=Inferred(labels),
            candidate=Pixels(begin="uniform", box=False),
            replay=OneGradient(),
            distance=SquaredL2(),
            penalties=(Clipping(clip), Scaling(scale)),
            optimiser=LBFGS(lr=rate) if with_memory else Adam(lr=rate, schedule=linear),
        ),
        steps=steps,
        restarts=restarts,
        retries=retries if with_memory else 0,
        solved=0.01 if with_memory else 1.0,
        stop=Stop(distance=stop_at, patience=500 if with_memory else 0, progress=0.05),
        num_examples=num_examples,
        keep="best" if with_memory else "last",
    )
