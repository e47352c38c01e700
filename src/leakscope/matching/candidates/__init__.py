"""Axis 2: what is optimised, where it starts, and where it must stay."""

from __future__ import annotations

from leakscope.matching.candidates.generators import TwoBranchGenerator
from leakscope.matching.candidates.latent import Latent, LatentMoments, TunedWeights
from leakscope.matching.candidates.patterned import Patterned
from leakscope.matching.candidates.pixels import Candidate, Pixels
from leakscope.matching.candidates.transformed import Transformed

__all__ = [
    "Candidate",
    "Latent",
    "LatentMoments",
    "Patterned",
    "Pixels",
    "Transformed",
    "TunedWeights",
    "TwoBranchGenerator",
]
