"""Which layers a search compares: those whose gradients change little by little as a picture changes.

The gradient of a layer is made of what it receives and of the error signal that comes back to it. Every mask and every
maximum on the way back depends on the picture. Behind the first pooling of ConvNet the error signals of two unrelated
pictures have a cosine of 0.4, before it, where each maximum sends its signal to one of nine places, one of 0.03: there
the signals of a picture at 26 dB are still mostly wrong (0.2 to 0.3). Such gradients say nothing of the way to the
picture until it is nearly reached, and they take most of the time of an evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from leakscope import rng as random
from leakscope.explanation import unrelated_inputs
from leakscope.networks import run
from leakscope.types import Observation


@dataclass(frozen=True)
class LayerSignal:
    """What is known of one layer that ran.

    Attributes:
        parameters: names of its own parameters.
        received: how many numbers of one example it received.
        steadiness: cosine of the error signals of two unrelated examples at its output.
    """

    parameters: tuple[str, ...]
    received: int
    steadiness: float


@dataclass(frozen=True)
class SteadyLayers:
    """Leave the first layers out, up to the last one that is not steady.

    Attributes:
        least: the steadiness from which on a layer is steady.
        room: numbers that the first compared layer receives, for each number of the input, at least. Compared gradients
            depend on the input through them alone, and behind ReLU half of them are zero.
        pace: steps from which on the usual rate is the best one; a shorter run takes a rate as much larger as it is
            shorter, at most `haste` times the usual one. Without the noise of unsteady layers longer steps pay.
        haste: 1 for a rate that stays as it is.
    """

    least: float = 0.2
    room: float = 2.0
    pace: int = 240
    haste: float = 3.0

    def factor_of_rate(self, steps: int) -> float:
        """What a run of so many steps multiplies its rate by."""
        return min(self.haste, max(1.0, self.pace / steps))

    def unsteady(self, seen: Observation) -> tuple[str, ...]:
        """Names of the parameters to leave out; none where too little would be left to tell the input."""
        layers = measure_layers(seen)
        last = max((place for place, one in enumerate(layers) if one.steadiness < self.least), default=-1)
        enough = self.room * torch.tensor(seen.input_shape).prod()
        ends = [place for place in range(last + 1, 0, -1) if place < len(layers) and layers[place].received >= enough]
        return tuple(name for one in layers[: ends[0]] for name in one.parameters) if ends else ()


def measure_layers(seen: Observation) -> list[LayerSignal]:
    """The layers with parameters in the order in which they run; none where the network is not understood.

    The error signals are those of a fixed random direction in the outputs, so that no label is needed.
    """
    own = {name: tuple(dict(module.named_parameters(name, recurse=False))) for name, module in _weighted(seen.model)}
    inputs = torch.cat(unrelated_inputs(seen, 2, draws=1)).requires_grad_()
    received: dict[str, int] = {}
    returned: dict[str, Tensor] = {}
    with torch.enable_grad():
        output = run(
            seen.model,
            inputs,
            layers=own,
            before=_counting(received),
            after=_recording(returned),
            seed=0,
        )
        if not isinstance(output, Tensor) or set(received) != set(returned) or not output.requires_grad:
            return []
        rng = random.generator(0, "steadiness")
        direction = random.normal(tuple(output.shape[1:]), rng, like=output.detach()).expand_as(output)
        signals = torch.autograd.grad(
            output, list(returned.values()), direction, allow_unused=True, materialize_grads=True
        )
    return [
        LayerSignal(own[name], received[name], _cosine(signal)) for name, signal in zip(returned, signals, strict=True)
    ]


def _weighted(model: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(name, module) for name, module in model.named_modules() if list(module.parameters(recurse=False))]


def _counting(received: dict[str, int]) -> Callable[[str, tuple[Any, ...]], None]:
    def count(name: str, values: tuple[Any, ...]) -> None:
        if values and isinstance(values[0], Tensor):
            received[name] = values[0][0].numel()

    return count


def _recording(returned: dict[str, Tensor]) -> Callable[[str, Any], Any]:
    def record(name: str, value: Any) -> Any:
        if isinstance(value, Tensor) and value.requires_grad and len(value) == 2:
            returned[name] = value
        return value

    return record


def _cosine(signal: Tensor) -> float:
    """Of the two examples; 1 where no signal comes back, which nothing can change."""
    left, right = signal.flatten(1)
    length = float(left.norm() * right.norm())
    return float(left @ right) / length if length > 0 else 1.0
