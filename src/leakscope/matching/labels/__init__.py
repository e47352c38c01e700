"""Axis 1: where labels come from: granted, read off the last layer, or optimised along."""

from __future__ import annotations

from leakscope.matching.labels.rules import (
    DistinctFirst,
    Inferred,
    Known,
    LabelRule,
    LastLayerSign,
    RowMinimum,
    Soft,
    count_examples,
    estimate_count,
    infer_labels,
    resolve_all,
)

__all__ = [
    "DistinctFirst",
    "Inferred",
    "Known",
    "LabelRule",
    "LastLayerSign",
    "RowMinimum",
    "Soft",
    "count_examples",
    "estimate_count",
    "infer_labels",
    "resolve_all",
]
