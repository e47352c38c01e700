"""Axis 5: what is known of natural inputs, as penalties on a trial."""

from __future__ import annotations

from leakscope.matching.penalties.group_consistency import GroupConsistency
from leakscope.matching.penalties.magnitudes import Clipping, InputNorm, LatentMoments, Scaling
from leakscope.matching.penalties.network import BatchNormPrior, LabelTerm
from leakscope.matching.penalties.penalty import Penalty, TotalVariation, Trial

__all__ = [
    "BatchNormPrior",
    "Clipping",
    "GroupConsistency",
    "InputNorm",
    "LabelTerm",
    "LatentMoments",
    "Penalty",
    "Scaling",
    "TotalVariation",
    "Trial",
]
