"""Layers that sort examples into bins: equal rows, and biases that rise or fall like stairs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.inspection.detector import Detector
from leakscope.inspection.finding import Measured
from leakscope.inspection.layers import LayerRows
from leakscope.inspection.parallel import LEAST_ENTRIES
from leakscope.inspection.received import Received

# Fewer biases are in order by chance.
_LEAST_BIASES = 16
# Of an even choice of so many a share is told well enough, and medians take time.
_MOST_COLUMNS = 64
# Two columns are equal up to this part of their length.
_SAME = 1e-2


@dataclass(frozen=True)
class ImprintLayers(Detector):
    """The largest set of equal rows, the share of equal columns, and |Spearman's ρ| of biases and their positions.

    Rows that are all equal measure one number of an input, and biases in steps sort examples by it; differences of
    neighbouring rows of the update are then single examples (Fowl et al.: Robbing the Fed, ICLR 2022).
    """

    name = "imprint"
    meaning = (
        "A layer measures the same thing over and over, with thresholds in steps: it sorts the examples of a batch "
        "into bins, and every bin with one example gives that example away exactly."
    )
    advice = "Do not train. Refuse the layer; no honest initialisation or training makes one like it."

    def measure(self, received: Received) -> list[Measured]:
        """All three figures for every layer that is large enough for them."""
        return [
            one for layer in received.layers for one in (*_equal_rows(layer), *_equal_columns(layer), *_stairs(layer))
        ]


def _equal_rows(layer: LayerRows) -> list[Measured]:
    if layer.rows.shape[1] < LEAST_ENTRIES:
        return []
    return [Measured("equal_rows", float(len(layer.parallel.equal)), layer.name, layer.parallel.equal)]


def _equal_columns(layer: LayerRows) -> list[Measured]:
    """Of a layer with enough rows: columns as the median one; evenly chosen ones where there are many."""
    count, width = layer.rows.shape
    if layer.is_convolution or count < LEAST_ENTRIES or not bool(layer.lengths.any()):
        return []
    places = torch.linspace(0, width - 1, min(width, _MOST_COLUMNS)).long()
    columns = layer.rows[:, places]
    middle = columns.median(1, keepdim=True).values
    near = torch.linalg.vector_norm(columns - middle, dim=0) <= _SAME * torch.linalg.vector_norm(middle)
    # Columns of zeros are the business of another detector.
    share = float(near.float().mean()) if bool(middle.any()) else 0.0
    return [Measured("equal_columns", share, layer.name)]


def _stairs(layer: LayerRows) -> list[Measured]:
    if layer.bias is None or len(layer.bias) < _LEAST_BIASES:
        return []
    return [Measured("staircase", abs(rank_correlation(layer.bias)), layer.name)]


def rank_correlation(values: Tensor) -> float:
    """Spearman's ρ of values and their positions; 0 where many are equal, since those have no order."""
    if len(values.unique()) < len(values) / 2:
        return 0.0
    ranks = values.double().argsort().argsort().double()
    places = torch.arange(len(values), dtype=torch.float64)
    return float(torch.corrcoef(torch.stack([ranks.cpu(), places]))[0, 1])
