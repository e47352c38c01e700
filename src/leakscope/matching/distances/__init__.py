"""Axis 4: how far a candidate's gradient is from the observed one."""

from __future__ import annotations

from leakscope.matching.distances.defended import ClippedFirst, PerTensor, Sparsified
from leakscope.matching.distances.distance import (
    L1,
    Around,
    Clipped,
    Cosine,
    Denoised,
    Direction,
    Distance,
    Masked,
    SquaredL2,
    Weighed,
)
from leakscope.matching.distances.layer_weights import LayerWeight, LayerWeighted
from leakscope.matching.distances.wasserstein import SquaredPlusNorm, Wasserstein

__all__ = [
    "L1",
    "Around",
    "Clipped",
    "ClippedFirst",
    "Cosine",
    "Denoised",
    "Direction",
    "Distance",
    "LayerWeight",
    "LayerWeighted",
    "Masked",
    "PerTensor",
    "Sparsified",
    "SquaredL2",
    "SquaredPlusNorm",
    "Wasserstein",
    "Weighed",
]
