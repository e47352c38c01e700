"""Whether one example makes the gradient of the client's own batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.inspection.detector import Detector
from leakscope.inspection.finding import LARGEST, Measured
from leakscope.inspection.gradient_norms import gradient_norms
from leakscope.inspection.received import Received
from leakscope.networks import norm_layers
from leakscope.types import Batch

LEAST_EXAMPLES = 8
# More cost time and tell hardly more.
MOST_EXAMPLES = 32
# Examples whose error is below this part of the largest are answered right: what they leave is rounding.
_ANSWERED = 1e-4


@dataclass(frozen=True)
class GradientDominance(Detector):
    """The largest gradient of one example over the sum of all others, the most of all layers.

    `d_snr` is maxᵢ‖gᵢ‖ / Σ_{j≠i}‖gⱼ‖ as published (Garov et al.: Hiding in Plain Sight, SEER, ICLR 2024). In a network
    that answers all examples but one, honest training makes it as large as can be: it is shown, and its limit is one
    that nothing exceeds. `per_error` first divides each ‖gᵢ‖ by
    the error of its example at the output, ‖∂ℓᵢ/∂scores‖: what is left is how unequally the network passes errors on,
    which training keeps within bounds and a fishing server does not. Examples that are answered right have no error to
    divide by: with k of n left, the ratio is multiplied by (k − 1)/(n − 1), which is 1 where all are.
    """

    name = "gradient-dominance"
    meaning = (
        "On your own batch, one example makes nearly all of the gradient, and its error does not explain that: the "
        "network passes the errors of the others on only faintly. What you share would be that one example's."
    )
    advice = "Do not train with this batch. A larger batch does not help: the network was made to drown all others."

    def lacks(self, received: Received) -> str:
        """The network and enough examples, each with a gradient of its own."""
        mixing = [] if received.model is None else norm_layers(received.model).items()
        named = [name for name, layer in mixing if layer.running_mean is None]
        if named:
            return f"gradients of single examples: normalisation {named[0]!r} mixes the examples of a batch"
        if not received.layers:
            return "layers of weights: the network has none"
        return received.lacks_examples(LEAST_EXAMPLES)

    def measure(self, received: Received) -> list[Measured]:
        """Both ratios, in the layer where each is largest."""
        assert received.model is not None
        assert received.batch is not None
        batch = Batch(*(part[:MOST_EXAMPLES] for part in (received.batch.inputs, received.batch.targets)), bounds=None)
        norms = gradient_norms(received.model, batch, received.task.loss)
        errors = received.errors[: len(batch)]
        counted = errors > _ANSWERED * errors.max()
        scaled = {name: torch.where(counted, value / errors.clamp_min(1e-30), 0.0) for name, value in norms.items()}
        # Where few are counted, one of them is a large part of all.
        part = (int(counted.sum()) - 1) / (len(batch) - 1)
        return [_largest("d_snr", norms), _largest("per_error", scaled, factor=part)]


def _largest(figure: str, values: dict[str, Tensor], *, factor: float = 1.0) -> Measured:
    ratios = {name: factor * dominance(value) for name, value in values.items()}
    name = max(ratios, key=lambda one: ratios[one])
    return Measured(figure, ratios[name], name, (int(values[name].argmax()),))


def dominance(norms: Tensor) -> float:
    """The largest over the sum of all others; 0 where all are 0, and without bound where one is no number."""
    largest, total = float(norms.max()), float(norms.sum())
    if not math.isfinite(total):
        return LARGEST
    return 0.0 if largest == 0 else min(LARGEST, largest / max(total - largest, 1e-30))
