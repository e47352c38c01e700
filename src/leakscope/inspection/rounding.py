"""Zeros that rounding explains: weights stored with few bits lie on a grid, of which zero is one step among others."""

from __future__ import annotations

import torch
from torch import Tensor

from leakscope.inspection.row_sizes import NEGLIGIBLE

# Of a step; half precision moves the seventh step of a grid by 0.003 of one.
_TOLERANCE = 0.02
# A first look at so many weights tells a grid from real numbers, which all lie near a step with probability 0.04ⁿ.
_SAMPLE, _LEAST_SAMPLE = 1024, 32
# Fewer weights on the second step say too little about how fast the steps empty.
_LEAST_COUNT = 16
_BLOCK = 1 << 17


def rounded_zeros(rows: Tensor) -> float:
    """The largest share of zeros that rounding to one uniform grid explains; 0 for weights that lie on none.

    Masses of equal steps of a log-concave density (normal, Laplace, uniform) are log-concave themselves: p₀·p₂ ≤ p₁².
    So at most p₁²/p₂ of a smooth distribution is rounded to zero, with p₁ and p₂ the means of both signs. Zeros that a
    server adds exceed it, and a layer of zeros and ones has no second step that would explain any.
    """
    weights = rows.flatten()
    negligible = NEGLIGIBLE * float(torch.linalg.vector_norm(weights)) / weights.numel() ** 0.5
    sample = weights[:: max(1, weights.numel() // _SAMPLE)].abs()
    sample = sample[sample > negligible]
    if len(sample) < _LEAST_SAMPLE:
        return 0.0
    step = float(sample.min())
    # The sample first: on real numbers nothing else is looked at.
    if not _is_on_grid(sample, step) or not all(_is_on_grid(block, step) for block in weights.split(_BLOCK)):
        return 0.0
    first, second = (_count(weights, step, level) for level in (1, 2))
    return 0.0 if second < _LEAST_COUNT else min(1.0, first**2 / (2 * second * weights.numel()))


def _is_on_grid(weights: Tensor, step: float) -> bool:
    levels = weights / step
    return float((levels - levels.round()).abs().max()) <= _TOLERANCE


def _count(weights: Tensor, step: float, level: int) -> int:
    """How many weights are so many steps from zero, on either side."""
    return sum(int(((block / step).round().abs() == level).sum()) for block in weights.split(_BLOCK))
