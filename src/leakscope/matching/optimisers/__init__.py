"""Axis 6: how candidates move."""

from __future__ import annotations

from leakscope.matching.optimisers.evolution import CMAES
from leakscope.matching.optimisers.first_order import SGD, Adam, Evaluate, Evaluation, Optimiser, RMSprop, State
from leakscope.matching.optimisers.langevin import Langevin
from leakscope.matching.optimisers.lbfgs import LBFGS
from leakscope.matching.optimisers.schedules import (
    Constant,
    FallingLate,
    Linear,
    Schedule,
    ThreeDrops,
    WarmCosine,
    constant,
    falling_late,
    linear,
    three_drops,
    warm_cosine,
)

__all__ = [
    "CMAES",
    "LBFGS",
    "SGD",
    "Adam",
    "Constant",
    "Evaluate",
    "Evaluation",
    "FallingLate",
    "Langevin",
    "Linear",
    "Optimiser",
    "RMSprop",
    "Schedule",
    "State",
    "ThreeDrops",
    "WarmCosine",
    "constant",
    "falling_late",
    "linear",
    "three_drops",
    "warm_cosine",
]
