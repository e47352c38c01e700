"""How often neurons fire on the client's own examples."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from leakscope.inspection.detector import Detector
from leakscope.inspection.finding import Measured
from leakscope.inspection.received import Received
from leakscope.inspection.recording import Firing

# Fewer examples tell no rates, and fewer neurons no share.
LEAST_EXAMPLES = 16
_LEAST_NEURONS = 16
# Fires for some example, but for no more than this share of them.
_RARE = 0.1


@dataclass(frozen=True)
class FiringRates(Detector):
    """Share of rectified neurons that fire rarely, and of those that never do, layer by layer.

    Trap weights make every neuron of a layer fire for few examples, so that its row of the update is one example
    (Boenisch et al.: When the Curious Abandon Honesty, EuroS&P 2023). A layer that never fires suppresses all updates
    before it, which singles out those of other clients (Pasquini et al., CCS 2022).
    """

    name = "firing-rates"
    meaning = (
        "The neurons of a layer were set so that on your own data nearly all of them fire for one example in many, or "
        "never. The row of a neuron that fires once is that example, up to a factor."
    )
    advice = "Do not train on this model, or not with these examples; ask for the weights before they were set."

    def lacks(self, received: Received) -> str:
        """The network and enough examples."""
        return received.lacks_examples(LEAST_EXAMPLES)

    def measure(self, received: Received) -> list[Measured]:
        """Both shares for every rectified layer that has neurons enough."""
        return [one for layer in received.firing for one in _measure(layer)] or [Measured("rare", 0.0)]


def _measure(layer: Firing) -> list[Measured]:
    rates = layer.fired.float().mean(0)
    if len(rates) < _LEAST_NEURONS:
        return []
    rare = torch.nonzero((rates > 0) & (rates <= _RARE)).flatten()
    silent = torch.nonzero(rates == 0).flatten()
    found = [Measured("silent", len(silent) / len(rates), layer.layer, tuple(silent.tolist()))]
    if not layer.has_places:
        found.append(Measured("rare", len(rare) / len(rates), layer.layer, tuple(rare.tolist())))
    return found
