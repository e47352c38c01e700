"""Rows of a table: how many of their columns came back."""

from __future__ import annotations

from torch import Tensor

from leakscope.metrics.metric import Metric
from leakscope.metrics.pairs import prepare_pair

TOLERANCE = 0.05
"""A column came back if it is this close, as a share of its range."""


def columns_recovered(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """The share of columns within 5 % of their range, per row; values are in [0, 1], clamped.

    Args:
        reconstruction: [n, columns].
        truth: [n, columns], the row behind each reconstruction.

    Example:
        >>> import torch
        >>> columns_recovered(torch.tensor([[0.5, 1.0]]), torch.tensor([[0.52, 0.0]])).tolist()
        [0.5]
    """
    left, right = prepare_pair(reconstruction, truth)
    return ((left - right).abs() <= TOLERANCE).to(left).flatten(1).mean(1)


COLUMNS_RECOVERED = Metric(
    "columns_recovered",
    columns_recovered,
    higher_is_better=True,
    unit="",
    reference="share of columns within 5 % of their range",
    nothing=0.0,
)
