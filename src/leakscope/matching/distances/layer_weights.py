"""AGIC's layer weights, around any distance: later convolutions count more.

Xu, Hong, Huang, Chen, Decouchant: AGIC, SRDS 2022, equations 6 to 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from leakscope.errors import UnsuitableError, UsageError
from leakscope.matching.distances.distance import Grouped, flat
from leakscope.matching.distances.rescaled import Weighed
from leakscope.networks import run
from leakscope.types import Observation

BatchNormRule = Literal["as-conv", "mean", "one", "excluded"]
Ramp = Literal["linear", "exponential", "logarithmic"]

# For untrained networks.
PUBLISHED_BETA = 50.0

_CONVOLUTION = nn.modules.conv._ConvNd
_NORMALISATION = (
    nn.modules.batchnorm._NormBase,  # batch and instance normalisation
    nn.GroupNorm,
    nn.LayerNorm,
)


@dataclass(frozen=True)
class LayerWeight:
    """What one shared tensor counts: `weight`, over the share of non-zeros in the tensor `zeros_of`, if any."""

    name: str
    weight: float
    zeros_of: str | None


@dataclass(frozen=True)
class LayerWeighted(Weighed):
    """The base distance between tensors scaled by √α, so that α stands inside sums of squares.

    Around the cosine that is AGIC's 1 − Σα⟨g, t⟩ / √(Σα‖g‖² Σα‖t‖²). Convolution i of N, in the
    order they run, has α = l/(1 − p) with l = 1 + (β − 1)(i − 1)/(N − 1) and p the share of exact
    zeros in its observed gradient (`relu_modifier`); its bias has the same weight. The other ramps
    of the paper's Table I go through the same two points, as a·eⁱ + b and a·log i + b. Linear layers
    and all others have the mean of l. The paper says nothing on batch normalisation:
    `batch_norm` gives its tensors the l of the convolution before, the mean, one, or nothing.

    A distance must be `bound` to an observation before it is used: only that tells the layers.
    """

    beta: float = PUBLISHED_BETA
    relu_modifier: bool = True
    batch_norm: BatchNormRule = "as-conv"
    ramp: Ramp = "linear"
    layers: tuple[LayerWeight, ...] = ()

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise UsageError(f"layer weights need beta > 0, got {self.beta}; 1 weighs all layers alike")
        if self.batch_norm not in get_args(BatchNormRule):
            known = ", ".join(get_args(BatchNormRule))
            raise UsageError(f"batch_norm must be one of {known}, got {self.batch_norm!r}")
        if self.ramp not in get_args(Ramp):
            raise UsageError(f"ramp must be one of {', '.join(get_args(Ramp))}, got {self.ramp!r}")

    def bound(self, seen: Observation) -> LayerWeighted:
        """The same distance with the weights of the layers of this model."""
        layers = layer_weights(
            seen, self.beta, relu_modifier=self.relu_modifier, batch_norm=self.batch_norm, ramp=self.ramp
        )
        return replace(self, base=self.base.bound(seen), layers=layers)

    @property
    def notes(self) -> tuple[str, ...]:
        """The ratio β of the last convolution's weight to the first's."""
        modifier = "with" if self.relu_modifier else "without"
        plain = "; all layers count alike" if self.beta == 1 and not self.relu_modifier else ""
        shape = "" if self.ramp == "linear" else f", {self.ramp}"
        return (*super().notes, f"layer weights: β = {self.beta:g}{shape}, {modifier} the ReLU modifier{plain}")

    def gains(self, target: Grouped) -> dict[str, Tensor]:
        """√α of every tensor and group: victims in lockstep differ in their zeros."""
        if not self.layers:
            raise UsageError("layer weights are not bound to a model; call bound(seen) first")
        gains = {}
        for layer in self.layers:
            value = target[layer.name]
            gain = value.new_full((len(value),), layer.weight)
            if layer.zeros_of is not None:
                kernel = target[layer.zeros_of]
                filled = flat(kernel).count_nonzero(1).to(value.dtype) / kernel[0].numel()
                # A gradient of nothing but zeros tells nothing of ReLU: it keeps its plain weight.
                gain = gain / torch.where(filled > 0, filled, torch.ones_like(filled))
            gains[layer.name] = gain.sqrt()
        return gains


def layer_weights(
    seen: Observation, beta: float, *, relu_modifier: bool, batch_norm: BatchNormRule, ramp: Ramp = "linear"
) -> tuple[LayerWeight, ...]:
    """The weight of every shared tensor, in the order of the update."""
    runs = list(_modules_in_order(seen))
    order = [module for module in runs if isinstance(module, _CONVOLUTION)]
    levels = [1 + (beta - 1) * share for share in ramp_shares(len(order), ramp)]
    mean = sum(levels) / len(levels) if levels else 1.0
    shared = {id(value): name for name, value in seen.model.named_parameters() if name in seen.update.tensors}
    weights: dict[str, LayerWeight] = {}
    latest = levels[0] if levels else 1.0
    for module in runs:
        convolves = isinstance(module, _CONVOLUTION)
        if convolves:
            latest = levels[order.index(module)]
        own = [shared[id(value)] for value in module.parameters(recurse=False) if id(value) in shared]
        weight = latest if convolves else _other(batch_norm, module, latest=latest, mean=mean)
        for name in own:
            # A parameter shared by two layers belongs to the one that runs first; a bias has its kernel's zeros.
            weights.setdefault(name, LayerWeight(name, weight, own[0] if convolves and relu_modifier else None))
    found = tuple(weights.get(name, LayerWeight(name, mean, None)) for name in seen.update.tensors)
    if not any(layer.weight for layer in found):
        raise UnsuitableError(
            "batch_norm='excluded' leaves nothing to compare: only normalisation layers were shared; "
            "use batch_norm='as-conv'"
        )
    return found


def ramp_shares(count: int, ramp: Ramp) -> list[float]:
    """How far along the way from 1 to β each of `count` convolutions is: 0 the first, 1 the last.

    Example:
        >>> [round(share, 2) for share in ramp_shares(4, "logarithmic")]
        [0.0, 0.5, 0.79, 1.0]
    """
    last = max(1, count - 1)
    if ramp == "exponential":
        # e^i over e^N, so that no number of layers overflows.
        return [
            math.expm1(place) / math.expm1(last) if last < 700 else math.exp(place - last) for place in range(count)
        ]
    if ramp == "logarithmic":
        return [math.log1p(place) / math.log1p(last) for place in range(count)]
    return [place / last for place in range(count)]


def _other(rule: BatchNormRule, module: nn.Module, *, latest: float, mean: float) -> float:
    if not isinstance(module, _NORMALISATION):
        return mean
    return {"as-conv": latest, "mean": mean, "one": 1.0, "excluded": 0.0}[rule]


def _modules_in_order(seen: Observation) -> Iterator[nn.Module]:
    """Modules with parameters of their own, each once, in the order in which they run."""
    own = [name for name, part in seen.model.named_modules() if next(part.parameters(recurse=False), None) is not None]
    order: dict[str, None] = {}

    def record(name: str, _received: object) -> None:
        order.setdefault(name)

    # Two examples: batch normalisation in training mode refuses one.
    grey = torch.full((2, *seen.input_shape), 0.5, device=seen.device, dtype=seen.dtype)
    with torch.no_grad():
        run(seen.model, grey, layers=own, before=record, seed=0)
    return (seen.model.get_submodule(name) for name in order)
