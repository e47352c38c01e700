"""Rows and filters that copy: one weight stands alone far above all others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.inspection.detector import Detector
from leakscope.inspection.finding import LARGEST, Measured
from leakscope.inspection.layers import LayerRows
from leakscope.inspection.received import Received

# Shorter rows stand out by chance; after pruning, what is left counts.
_LEAST_ENTRIES = 16
# One such filter is a chance of training; a server needs several: the third largest value counts.
_RANK = 3


@dataclass(frozen=True)
class CopyKernels(Detector):
    """How far the largest weight of a filter or a row stands above the others.

    `transmit_snr` = max|w| / Σ of the other |w| (Garov et al.: Hiding in Plain Sight, SEER, ICLR 2024, who report that
    it never exceeds 1 in honest networks); `peak` = max|w| / the root mean square of the others, which does not depend
    on the length of a row. Of both the third largest value in a layer counts.
    """

    name = "copy-kernels"
    meaning = (
        "Filters or rows of a layer pass one value on and ignore the rest: they copy or shift the picture. A stack of "
        "them carries private pixels to a layer whose update gives them away (MKOR)."
    )
    advice = "Do not train. Honest training does not make such filters; ask where these weights come from."

    def measure(self, received: Received) -> list[Measured]:
        """Both figures for every layer with rows that are long enough."""
        return [
            _ranked(figure, layer, values, limit=self.thresholds[figure])
            for layer in received.layers
            for figure, values in _figures(layer, received.pruned).items()
        ]


def _figures(layer: LayerRows, pruned: float) -> dict[str, Tensor]:
    """Both figures of every row; 0 for rows that are not judged."""
    if (1 - pruned) * layer.rows.shape[1] < _LEAST_ENTRIES:
        return {}
    sizes = layer.sizes
    largest, total, squares = sizes.largest, sizes.total, sizes.squares
    # Under agreed pruning the zeros say nothing.
    counted = layer.weights - 1 if pruned else torch.full_like(largest, layer.rows.shape[1] - 1)
    rest = ((squares - largest.square()).clamp_min(0) / counted.clamp_min(1)).sqrt()
    figures = {"transmit_snr": largest / (total - largest).clamp_min(1e-30), "peak": largest / rest.clamp_min(1e-30)}
    # A pruned row may have nothing left to stand above, and a row of zeros has no peak.
    judged = (largest > 0) & (counted >= _LEAST_ENTRIES - 1)
    return {name: torch.where(judged, value, 0.0) for name, value in figures.items()}


def _ranked(figure: str, layer: LayerRows, values: Tensor, *, limit: float) -> Measured:
    """The third largest value, and the rows above the limit: at least those up to it."""
    values, order = values.clamp_max(LARGEST).sort(descending=True)
    rank = min(_RANK, len(values))
    places = order[: max(rank, int((values > limit).sum()))]
    return Measured(figure, float(values[rank - 1]), layer.name, tuple(places.tolist()))
