"""Axis 1: where labels come from: granted, read off the last layer, or optimised along."""

from __future__ import annotations

from leakscope.matching.labels.confidence import LabelGuess
from leakscope.matching.labels.inference import RuleName, infer_labels
from leakscope.matching.labels.rules import DistinctFirst, Inferred, Known, LabelRule, LastLayerSign, RowMinimum, Soft

__all__ = [
    "DistinctFirst",
    "Inferred",
    "Known",
    "LabelGuess",
    "LabelRule",
    "LastLayerSign",
    "RowMinimum",
    "RuleName",
    "Soft",
    "infer_labels",
]
