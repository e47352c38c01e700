"""Pair reconstructions with private examples before anything is measured.

An update says nothing about the order of the examples, so neither can a fair score.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from leakscope.errors import BadInputError
from leakscope.metrics.pairs import compute_dtype, require_floating

# Worse than the largest error between two pictures in [0, 1], so a finite picture always goes first.
BROKEN = 2.0


def mse_matrix(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """Mean squared error of every truth (row) with every reconstruction (column), clamped to [0, 1].

    A reconstruction that holds NaN or Inf costs 2 everywhere.
    """
    if reconstruction.shape[1:] != truth.shape[1:] or truth.ndim < 2:
        raise BadInputError(
            f"reconstructions of shape {list(reconstruction.shape[1:])} cannot be compared with examples of shape "
            f"{list(truth.shape[1:])}; the attack must return inputs of the private examples' shape"
        )
    require_floating(reconstruction, truth)
    dtype = compute_dtype(reconstruction, truth)
    guesses = reconstruction.to(dtype).flatten(1)
    finite = guesses.isfinite().all(1)
    guesses = guesses.clamp(0, 1)
    # One row at a time: differences are exact where a product expansion cancels, and memory stays O(k).
    rows = [(guesses - example).square().mean(1) for example in truth.to(dtype).flatten(1).clamp(0, 1)]
    return torch.stack(rows).masked_fill(~finite, BROKEN)


def assign(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """Pair each private example with the reconstruction that makes the total error least.

    The counts may differ: spare reconstructions are ignored, spare examples get −1.

    Args:
        reconstruction: [k, …].
        truth: [n, …].

    Returns:
        [n] integers: the row of `reconstruction` paired with each example, −1 for none.

    Example:
        >>> images = torch.eye(3)
        >>> assign(images[[2, 0, 1]], images).tolist()
        [1, 2, 0]
    """
    return solve(mse_matrix(reconstruction, truth))


def solve(cost: Tensor) -> Tensor:
    """Least-cost one-to-one assignment of the columns of `cost` to its rows; −1 where none is left."""
    # Imported here: it takes longer than the rest of leakscope, and many commands never score.
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(cost.detach().to("cpu", torch.float64).numpy())
    assignment = np.full(len(cost), -1, dtype=np.int64)
    assignment[rows] = columns
    return torch.from_numpy(assignment).to(cost.device)
