"""Rows that are multiples of another row, counted."""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.inspection.detector import Detector
from leakscope.inspection.finding import Measured
from leakscope.inspection.parallel import LEAST_ENTRIES
from leakscope.inspection.received import Received


@dataclass(frozen=True)
class RowPairs(Detector):
    """How many rows or filters of a layer are proportional to another one, in either direction.

    A pair w and αw with α < 0 lets one of the two pass whatever the sign of the input (Wang, Velipasalar, Gursoy: MKOR,
    WACV 2024, Eqs. 10–13 and 20). Training brings single honest rows close to each other, so rows are counted from
    |cosine| ≥ 0.999 and the largest cosine decides nothing. Where pruning was agreed, a pair counts if at least nine
    weights are in both rows: rows that it left with one or two are parallel by chance. Without such an agreement every
    pair counts, for a server loses nothing by rows of few weights.
    """

    name = "row-pairs"
    meaning = (
        "Several rows of a layer are exact multiples of each other. Such pairs keep the sign of every value, so that "
        "inputs survive the layer and can be read off the update."
    )
    advice = "Do not train. Rows that are started at random and trained do not become proportional by the dozen."

    def measure(self, received: Received) -> list[Measured]:
        """The number of rows with a partner, for every layer with rows that are long enough."""
        found = []
        for layer in received.layers:
            if layer.rows.shape[1] >= LEAST_ENTRIES:
                places = layer.parallel.places
                found.append(Measured("paired_rows", float(len(places)), layer.name, places))
        return found
