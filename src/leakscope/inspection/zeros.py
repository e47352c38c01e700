"""Weights that are zero, or so small beside the others that they are meant to be."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.inspection.detector import Detector
from leakscope.inspection.finding import Measured
from leakscope.inspection.layers import LayerRows
from leakscope.inspection.received import Received
from leakscope.inspection.rounding import rounded_zeros

# A row or a column of which so much is negligible leads nowhere.
_EMPTY = 0.9
# Real numbers have fewer zeros, and so few are no sign of anything.
_FEW = 0.1


@dataclass(frozen=True)
class ZeroWeights(Detector):
    """Share of negligible weights in each tensor, and share of rows or columns that hold hardly anything else.

    A server that leads an input through the network undisturbed (MKOR, class fishing) switches everything else off.
    Pruning does so, too: what the federation has agreed to prune is taken off, and empty lines are then not counted.
    Weights of few bits have zeros because they were rounded; of those, what rounding explains is taken off the share.
    """

    name = "zeros"
    meaning = (
        "Most weights of a layer are switched off, as in a network that carries inputs through untouched, or whose "
        "output ignores all but one class. Training leaves no such zeros."
    )
    advice = "Do not train, unless the federation prunes: then declare the share (--pruned)."

    def measure(self, received: Received) -> list[Measured]:
        """Both shares for every layer; a layer that is zero altogether leads nothing anywhere, and is left out."""
        return [
            one for layer in received.layers if bool(layer.lengths.any()) for one in _measure(layer, received.pruned)
        ]


def _measure(layer: LayerRows, pruned: float) -> list[Measured]:
    by_row, by_column = layer.sizes.negligible, layer.sizes.negligible_by_column
    found = [_share(layer, pruned)]
    return found if pruned else [*found, _empty(layer.name, by_row, by_column)]


def _share(layer: LayerRows, pruned: float) -> Measured:
    """Share of negligible weights, of those that neither agreed pruning nor rounding explains."""
    share = float(layer.sizes.negligible.mean())
    # The look at every weight is for layers of which it can matter.
    rounded = min(share, rounded_zeros(layer.rows)) if share > max(pruned, _FEW) else 0.0
    excused = max(pruned, rounded)
    detail = f"{share:.2g} zero, rounding explains {rounded:.2g}" if rounded > pruned else ""
    return Measured("share", max(0.0, share - excused) / max(1 - excused, 1e-30), layer.name, detail=detail)


def _empty(name: str, by_row: Tensor, by_column: Tensor) -> Measured:
    """The larger of the shares of rows and of columns that are switched off."""
    rows, columns = (torch.nonzero(line > _EMPTY).flatten() for line in (by_row, by_column))
    shares = len(rows) / len(by_row), len(columns) / len(by_column)
    places, what = (rows, "rows") if shares[0] >= shares[1] else (columns, "columns")
    return Measured("empty_lines", max(shares), name, tuple(places.tolist()), what)
