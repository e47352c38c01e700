"""Fully connected layers where none belongs, or wider than agreed."""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.inspection.detector import Detector
from leakscope.inspection.finding import Measured
from leakscope.inspection.layers import LayerRows
from leakscope.inspection.received import Received


@dataclass(frozen=True)
class FullyConnectedLayers(Detector):
    """Looks for fully connected layers before the first convolution, and for ones wider than the agreed network's.

    The gradient of such a layer holds its input in closed form; in front of everything its input is the private data
    (Fowl et al.: Robbing the Fed, ICLR 2022).
    """

    name = "fully-connected"
    meaning = (
        "A fully connected layer sees the private input directly, or is wider than agreed. From such a layer's update "
        "its input can be read off without any search, and the wider it is the more examples of a batch."
    )
    advice = "Do not train. Ask for the network that was agreed, without the layer."

    def measure(self, received: Received) -> list[Measured]:
        """Layers before the first convolution (1 each), and widths as a multiple of what was agreed."""
        return [*_find_misplaced(received), *_compare_widths(received)] or [Measured("before_convolution", 0.0)]


def _find_misplaced(received: Received) -> list[Measured]:
    """In a network that convolves, what comes before the first convolution; what was agreed is in its place."""
    layers = received.layers
    first = next((place for place, layer in enumerate(layers) if layer.is_convolution), 0)
    agreed = received.reference or {}
    return [
        Measured("before_convolution", 1.0, layer.name, detail=f"{_shape(layer)}, before {layers[first].name}")
        for layer in layers[:first]
        if layer.name not in agreed
    ]


def _compare_widths(received: Received) -> list[Measured]:
    if received.reference is None:
        return []
    widths = {name: len(value) for name, value in received.reference.items() if value.ndim == 2}
    widest = max(widths.values(), default=1)
    return [
        Measured("width", len(layer.rows) / widths.get(layer.name, widest), layer.name, detail=_shape(layer))
        for layer in received.layers
        if not layer.is_convolution
    ]


def _shape(layer: LayerRows) -> str:
    return f"{layer.rows.shape[1]} to {layer.rows.shape[0]} numbers"
