"""How often neurons fire on the client's own examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from leakscope.inspection.detector import Detector
from leakscope.inspection.finding import Measured
from leakscope.inspection.received import Received
from leakscope.networks import run

# Fewer examples tell no rates, and fewer neurons no share.
LEAST_EXAMPLES = 16
_LEAST_NEURONS = 16
# Fires for some example, but for no more than this share of them.
_RARE = 0.1
_RECTIFIERS = (
    functional.relu,
    functional.relu_,
    functional.relu6,
    torch.relu,
    torch.relu_,
    Tensor.relu,
    Tensor.relu_,
)


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
        assert received.model is not None
        assert received.batch is not None
        layers = record_firing(received.model, received.batch.inputs)
        return [one for name, fired in layers for one in _measure(name, fired)] or [Measured("rare", 0.0)]


def record_firing(model: nn.Module, inputs: Tensor) -> list[tuple[str, Tensor]]:
    """For every rectifier in the order of execution: the layer before it, and where its input is positive, [n, …]."""
    layers = [name for name, module in model.named_modules() if any(own.ndim > 1 for own in module.parameters(False))]
    recorder = _Recorder()
    with torch.no_grad(), recorder:
        run(model, inputs, layers=layers, before=recorder.enter)
    return recorder.found


def _measure(name: str, fired: Tensor) -> list[Measured]:
    # A channel of a convolution fires where any of its positions does.
    rates = (fired if fired.ndim == 2 else fired.flatten(2).any(2)).float().mean(0)
    if len(rates) < _LEAST_NEURONS:
        return []
    rare = torch.nonzero((rates > 0) & (rates <= _RARE)).flatten()
    silent = torch.nonzero(rates == 0).flatten()
    found = [Measured("silent", len(silent) / len(rates), name, tuple(silent.tolist()))]
    if fired.ndim == 2:
        found.append(Measured("rare", len(rare) / len(rates), name, tuple(rare.tolist())))
    return found


class _Recorder(TorchFunctionMode):
    """Looks at what rectifiers receive, modules and functions alike."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, Tensor]] = []
        self.last = "input"

    def enter(self, name: str, _received: tuple[Any, ...]) -> None:
        self.last = name

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _RECTIFIERS and args[0].ndim >= 2:
            # Before it runs: it may work in place.
            self.found.append((self.last, args[0].detach() > 0))
        return func(*args, **(kwargs or {}))
