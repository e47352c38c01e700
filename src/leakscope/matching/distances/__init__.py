"""Axis 4: how far a candidate's gradient is from the observed one."""

from __future__ import annotations

from leakscope.matching.distances.compressed import Rounded, SoftSigned
from leakscope.matching.distances.defended import Clipped, ClippedFirst, PerTensor, Sparsified
from leakscope.matching.distances.distance import (
    L1,
    Cosine,
    Distance,
    DistanceWrapper,
    Masked,
    Shortened,
    SquaredL2,
    distance_of_zero,
)
from leakscope.matching.distances.layer_weights import BatchNormRule, LayerWeight, LayerWeighted
from leakscope.matching.distances.rescaled import Denoised, Direction, Weighed
from leakscope.matching.distances.wasserstein import SquaredPlusNorm, Wasserstein

__all__ = [
    "L1",
    "BatchNormRule",
    "Clipped",
    "ClippedFirst",
    "Cosine",
    "Denoised",
    "Direction",
    "Distance",
    "DistanceWrapper",
    "LayerWeight",
    "LayerWeighted",
    "Masked",
    "PerTensor",
    "Rounded",
    "Shortened",
    "SoftSigned",
    "Sparsified",
    "SquaredL2",
    "SquaredPlusNorm",
    "Wasserstein",
    "Weighed",
    "distance_of_zero",
]
