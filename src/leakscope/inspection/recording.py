"""Run a network once, and note which of its rectified neurons fire for which examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from leakscope.networks import run
from leakscope.types import Tensors

_RECTIFIERS = (
    functional.relu,
    functional.relu_,
    functional.relu6,
    torch.relu,
    torch.relu_,
    Tensor.relu,
    Tensor.relu_,
)


@dataclass(frozen=True, eq=False)
class Firing:
    """What one rectifier saw.

    Attributes:
        layer: the layer before it.
        fired: whether each neuron's input was positive, [n, neurons]; a channel fires where any of its places does.
        has_places: whether its neurons are channels.
    """

    layer: str
    fired: Tensor
    has_places: bool


def run_recorded(model: nn.Module, inputs: Tensor, state: Tensors | None = None) -> tuple[Any, tuple[Firing, ...]]:
    """What the network returns, without derivatives, and its rectifiers in the order of execution.

    `state` takes the place of parameters and buffers of the same names.
    """
    layers = [name for name, module in model.named_modules() if any(own.ndim > 1 for own in module.parameters(False))]
    recorder = _Recorder()
    with torch.no_grad(), recorder:
        output = run(model, inputs, parameters=state, layers=layers, before=recorder.enter)
    return output, tuple(recorder.found)


class _Recorder(TorchFunctionMode):
    """Looks at what rectifiers receive, modules and functions alike."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Firing] = []
        self.last = "input"

    def enter(self, name: str, _received: tuple[Any, ...]) -> None:
        self.last = name

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _RECTIFIERS and args[0].ndim >= 2:
            # Before it runs: it may work in place.
            self.found.append(_look(self.last, args[0].detach()))
        return func(*args, **(kwargs or {}))


def _look(layer: str, received: Tensor) -> Firing:
    if received.ndim == 2:
        return Firing(layer, received > 0, has_places=False)
    return Firing(layer, received.flatten(2).amax(2) > 0, has_places=True)
