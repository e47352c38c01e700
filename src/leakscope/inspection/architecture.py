"""The architecture is the one that was agreed: names, shapes, types and layers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from leakscope.inspection.detector import Detector
from leakscope.inspection.finding import Measured
from leakscope.inspection.received import Received
from leakscope.types import Tensors

_COUNTER = "num_batches_tracked"


@dataclass(frozen=True)
class AgreedArchitecture(Detector):
    """Compares every tensor, and every layer where both networks are at hand, with what was agreed."""

    name = "architecture"
    meaning = (
        "The model is not the network that was agreed on. Layers put in or widened are how a server plants one that "
        "copies inputs into the update (Robbing-the-Fed, LOKI)."
    )
    advice = "Do not train. Load weights only into the network that was agreed, and refuse what does not fit."

    def lacks(self, received: Received) -> str:
        """What was agreed."""
        return "" if received.reference is not None else "the architecture that was agreed on"

    def measure(self, received: Received) -> list[Measured]:
        """Every difference counts as 1, so that each is named; none is a single 0."""
        agreed = received.reference or {}
        found = [*_compare_tensors(agreed, received.tensors), *_compare_layers(received.agreed, received.model)]
        return [Measured("differences", 1.0, name, detail=told) for name, told in found] or [
            Measured("differences", 0.0)
        ]


def _compare_tensors(agreed: Tensors, got: Tensors) -> list[tuple[str, str]]:
    # Old files lack the counter of batches, which no output depends on.
    names = [name for name in {**agreed, **got} if not name.endswith(_COUNTER)]
    told = {name: _difference(agreed.get(name), got.get(name)) for name in names}
    return [(name, difference) for name, difference in told.items() if difference]


def _difference(wanted: Tensor | None, got: Tensor | None) -> str:
    if wanted is None:
        return "not in the agreed network"
    if got is None:
        return "missing"
    if wanted.shape != got.shape:
        return f"expected shape {list(wanted.shape)}, got {list(got.shape)}"
    return f"expected {wanted.dtype}, got {got.dtype}" if wanted.dtype != got.dtype else ""


def _compare_layers(agreed: nn.Module | None, got: nn.Module | None) -> list[tuple[str, str]]:
    """Layers without tensors, too: another activation, padding or order changes no shape."""
    if agreed is None or got is None:
        return []
    wanted, found = _describe(agreed), _describe(got)
    differing = [name for name in {**wanted, **found} if wanted.get(name) != found.get(name)]
    return [(name, f"expected {wanted.get(name, 'nothing')}, got {found.get(name, 'nothing')}") for name in differing]


def _describe(model: nn.Module) -> dict[str, str]:
    return {
        name: f"{type(module).__name__}({module.extra_repr()})"
        for name, module in model.named_modules()
        if next(module.children(), None) is None
    }
