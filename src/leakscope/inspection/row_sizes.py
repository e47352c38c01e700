"""What several detectors ask of the weights of a layer, found in one pass over them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Beside the root mean square of the layer; of normal numbers 0.08 % are below it.
NEGLIGIBLE = 1e-3
# Numbers that are looked at together: few enough to stay in a processor's cache, where every look is cheap.
_BLOCK = 1 << 17


@dataclass(frozen=True, eq=False)
class RowSizes:
    """Sums and counts over every row, [rows], as floats; counts are whole numbers.

    Attributes:
        largest: max|w|.
        total: Σ|w|.
        squares: Σw².
        positive: how many are positive.
        negligible: share of those below 1/1000 of the layer's root mean square.
        negligible_by_column: the same of every column, [columns].
    """

    largest: Tensor
    total: Tensor
    squares: Tensor
    positive: Tensor
    negligible: Tensor
    negligible_by_column: Tensor


def measure_rows(rows: Tensor) -> RowSizes:
    """All of them, block by block."""
    limit = NEGLIGIBLE * torch.linalg.vector_norm(rows) / rows.numel() ** 0.5
    columns = rows.new_zeros(rows.shape[1])
    found: list[Tensor] = []
    step = max(1, _BLOCK // rows.shape[1])
    space = torch.empty_like(rows[:step])
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        counted, sizes = space[: len(block)], block.abs()
        # Comparisons straight into numbers: truth values take several times as long to add up.
        off = torch.lt(sizes, limit, out=counted)
        columns += off.sum(0)
        negligible = off.mean(1)
        positive = torch.gt(block, 0, out=counted).sum(1)
        squares = torch.square(block, out=counted).sum(1)
        found.append(torch.stack([sizes.amax(1), sizes.sum(1), squares, positive, negligible]))
    return RowSizes(*torch.cat(found, dim=1), negligible_by_column=columns / len(rows))
