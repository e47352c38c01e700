"""The last layer: rows or biases that let one class speak and silence the others."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from leakscope.inspection.detector import Detector
from leakscope.inspection.finding import LARGEST, Measured
from leakscope.inspection.received import Received


@dataclass(frozen=True)
class ClassifierHead(Detector):
    """How unequal the rows and the biases of the last fully connected layer are.

    `row_ratio` is the longest row over the median one, `bias_spread` the largest distance of a bias from their median.
    A server that fishes for one class switches the rows of all others off and lifts their biases until softmax lets
    no gradient through (Wen et al.: Fishing for User Data in Large-Batch Federated Learning, ICML 2022).
    """

    name = "head"
    meaning = (
        "The last layer treats one class unlike all others. With such a head the gradient of a whole batch is that of "
        "the examples of one class, often of a single example, which is then rebuilt as if it had been alone."
    )
    advice = "Do not train. Ask for the last round's head, or start it anew on your side."

    def lacks(self, received: Received) -> str:
        """A fully connected layer."""
        return "" if received.head is not None else "a fully connected layer: the network has none"

    def measure(self, received: Received) -> list[Measured]:
        """Both figures; a head with fewer than three rows has no median that means anything."""
        head = received.head
        if head is None or len(head.rows) < 3:
            return []
        lengths = head.lengths
        found = [Measured("row_ratio", _over_median(lengths), head.name, (int(lengths.argmax()),))]
        if head.bias is not None:
            away = (head.bias - head.bias.median()).abs()
            name = head.name.replace("weight", "bias")
            found.append(Measured("bias_spread", min(LARGEST, float(away.max())), name, (int(away.argmax()),)))
        return found


def _over_median(lengths: Tensor) -> float:
    largest, middle = float(lengths.max()), float(lengths.median())
    return 1.0 if largest == 0 else min(LARGEST, largest / max(middle, 1e-30))
