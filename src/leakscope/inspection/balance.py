"""Rows that hold exactly as many positive weights as each other."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from leakscope.inspection.detector import Detector
from leakscope.inspection.finding import Measured
from leakscope.inspection.layers import LayerRows
from leakscope.inspection.received import Received

# Of shorter rows, and of fewer, many have the same number by chance.
_LEAST_ENTRIES, _LEAST_ROWS = 64, 16


@dataclass(frozen=True)
class BalancedRows(Detector):
    """The largest share of a layer's rows with one and the same number of positive weights.

    Trap weights are half of each row negative, in random places, and the negative half larger (Boenisch et al.: When
    the Curious Abandon Honesty, EuroS&P 2023). Rows drawn at random have the likeliest number with probability
    √(2/πn), and training only spreads them. Where pruning was agreed, n is what it left of a row.
    """

    name = "balanced-rows"
    meaning = (
        "Many rows of a layer have exactly the same number of positive weights, which chance does not do: they were "
        "drawn by a rule, as trap weights are, whose neurons fire for single examples and give them away."
    )
    advice = "Do not train. Ask how the layer was initialised, and for the seed to draw it again."

    def measure(self, received: Received) -> list[Measured]:
        """The share for every layer that is large enough."""
        return [_measure(layer, received.pruned > 0) for layer in received.layers if _is_large(layer)]


def _is_large(layer: LayerRows) -> bool:
    return layer.rows.shape[0] >= _LEAST_ROWS and layer.rows.shape[1] >= _LEAST_ENTRIES


def _measure(layer: LayerRows, pruned: bool) -> Measured:
    width = layer.rows.shape[1]
    counts = layer.sizes.positive
    # Rows of one sign are the business of other detectors.
    judged = (counts > 0) & (counts < width)
    if pruned:
        judged &= layer.weights >= _LEAST_ENTRIES
    mixed = torch.nonzero(judged).flatten()
    if not len(mixed):
        return Measured("same_balance", 0.0, layer.name)
    common = counts[mixed].mode().values
    places = mixed[counts[mixed] == common]
    told = f"{int(common)} of {width} weights positive"
    return Measured("same_balance", len(places) / len(counts), layer.name, tuple(places.tolist()), told)
