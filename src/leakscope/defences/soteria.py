"""Soteria: columns of one fully connected layer's gradient are zeroed, those of features that tell little of the class.

Sun, Li, Wang, Li, Chen: Soteria: Provable Defense Against Privacy Leakage in Federated Learning, CVPR 2021.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from leakscope.attack import Attack
from leakscope.defence import ClientHooks, Defence, StepContext
from leakscope.errors import UnsuitableError, UsageError, suggest
from leakscope.networks import run
from leakscope.tensors import hash_tensors
from leakscope.types import Observation, Tensors

PAPER = (
    "Sun, Li, Wang, Li, Chen: Soteria: Provable Defense Against Privacy Leakage in Federated Learning, CVPR 2021, "
    "arXiv:2012.06043"
)

# What is added to a feature before it divides, by whose code: the authors' notebook for DLG, their example for
# Inverting Gradients, and the code of GGL and MKOR.
Divisor = Literal["dlg", "inverting-gradients", "ggl"]
EPSILONS: dict[str, float] = {"dlg": 0.0, "inverting-gradients": 0.1, "ggl": 1e-10}
# Derivatives that are computed at once, each of one feature by one example: 2,048 take two and a half times as long as
# 128 behind LeNet-5 and a narrow ConvNet, since what lies between falls out of the cache.
_AT_ONCE = 128
# The cells of an audit attack the same updates one after the other, and a derivative of every feature takes minutes on
# a large network: so the lengths of the last few steps are kept, by all they depend on. They are no one's secret: a
# length tells of no pixel.
_KEPT_STEPS = 16
_kept: OrderedDict[str, Tensor] = OrderedDict()


@dataclass(frozen=True)
class Soteria(Defence):
    """Zero the columns i of a layer's weight gradient whose Σ_batch ‖∂r_i/∂x‖ / (r_i + ε) is below a percentile.

    r is what the layer receives. Its bias and all other layers are shared as they are.
    """

    percentile: float
    variant: Divisor = "inverting-gradients"
    layer: str | None = None
    name: str = "soteria"
    paper: str = PAPER

    # A first layer that is fully connected is shared as it is, unless it is the defended one.
    strong_attacks = ("fc-inversion",)

    def __post_init__(self) -> None:
        if not 0 <= self.percentile < 100:
            raise UsageError(f"soteria needs 0 ≤ percentile < 100, got {self.percentile}; 0 changes nothing")
        if self.variant not in EPSILONS:
            raise UsageError(f"unknown variant {self.variant!r} of soteria.{suggest(self.variant, get_args(Divisor))}")

    def hooks(self) -> ClientHooks:
        """Act on the gradient of every step."""
        return ClientHooks(gradient=self._mask)

    def adapt(self, attack: Attack) -> Attack:
        """The attacker leaves the changed tensor out, and matches all others, which were shared as they are."""
        if not self.percentile:
            return attack
        return attack.revised(lambda recipe: replace(recipe, leave_out=(*recipe.leave_out, DefendedWeight(self.layer))))

    def _mask(self, gradient: dict[str, Tensor], context: StepContext) -> dict[str, Tensor]:
        if not self.percentile:
            return gradient
        layer = find_layer(context.model, context.batch.inputs, self.layer)
        weight = weight_name(layer)
        if weight not in gradient:
            raise UnsuitableError(f"soteria acts on {weight!r}, which gets no gradient; choose another layer=…")
        scores = score_features(context, layer, epsilon=EPSILONS[self.variant], gradient=gradient)
        least = scores.double().quantile(self.percentile / 100)
        return {**gradient, weight: gradient[weight] * (scores >= least).to(gradient[weight])}


def soteria(percentile: float = 60.0, *, variant: Divisor = "inverting-gradients", layer: str | None = None) -> Soteria:
    """Zero the least telling columns, `percentile` in a hundred, of a fully connected layer's weight gradient.

    `layer` is the defended layer by name, by default the last fully connected one that runs. `variant` says what is
    added to a feature before it divides: nothing ("dlg"), 0.1 ("inverting-gradients") or 1e-10 ("ggl").
    """
    return Soteria(percentile, variant, layer)


@dataclass(frozen=True)
class DefendedWeight:
    """The weight of a fully connected layer: of this name, or of the last one that runs."""

    layer: str | None = None

    def names(self, seen: Observation) -> tuple[str, ...]:
        """The name of the tensor."""
        grey = torch.full((2, *seen.input_shape), 0.5, device=seen.device, dtype=seen.dtype)
        return (weight_name(find_layer(seen.model, grey, self.layer)),)


def find_layer(model: nn.Module, inputs: Tensor, layer: str | None = None) -> str:
    """The name of the defended layer: as given, or the last fully connected one that runs on `inputs`."""
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if layer is not None:
        if layer not in linear:
            raise UnsuitableError(f"the network has no fully connected layer {layer!r}.{suggest(layer, linear)}")
        return layer
    ran: list[str] = []

    def record(name: str, _received: tuple[Any, ...]) -> None:
        ran.append(name)

    with torch.no_grad():
        run(model, inputs, layers=linear, before=record, seed=0)
    if not ran:
        raise UnsuitableError(
            "soteria zeroes columns of a fully connected layer's gradient, and no nn.Linear runs in this network; use "
            "prune, which acts on all layers"
        )
    return ran[-1]


def score_features(context: StepContext, layer: str, *, epsilon: float, gradient: Tensors | None = None) -> Tensor:
    """Σ_batch ‖∂r_i/∂x‖ / (r_i + ε) for every feature i that `layer` receives; r keeps its sign.

    With the `gradient` of the step, lengths that were found for the very same step are not computed again.
    """
    inputs = context.batch.inputs.detach().requires_grad_()
    received: list[Tensor] = []

    def record(_name: str, values: tuple[Any, ...]) -> None:
        received.append(values[0])

    weights = {name: value.detach() for name, value in context.parameters.items()}
    with torch.enable_grad():
        run(context.model, inputs, parameters=weights, layers=[layer], before=record)
    if len(received) != 1 or received[0].ndim != 2:
        raise UnsuitableError(
            f"soteria needs a layer that runs once and receives features [n, d], {layer!r} does not; choose another "
            "layer=…"
        )
    features = received[0]
    # 0 / 0 is a feature that nothing moves: it tells nothing.
    lengths = _lengths(features, inputs) if gradient is None else _known_lengths(features, inputs, gradient)
    ratios = lengths / (features.detach().T + epsilon)
    return ratios.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf).sum(1)


def _known_lengths(features: Tensor, inputs: Tensor, gradient: Tensors) -> Tensor:
    """As `_lengths`; of a step with the same inputs, features and gradient they are read back.

    A network that computes something else has another gradient, whatever its weights are.
    """
    key = hash_tensors({**gradient, " inputs": inputs, " features": features})
    if key not in _kept:
        _kept[key] = _lengths(features, inputs).cpu()
        while len(_kept) > _KEPT_STEPS:
            _kept.popitem(last=False)
    return _kept[key].to(features.device)


def _lengths(features: Tensor, inputs: Tensor) -> Tensor:
    """‖∂r_i/∂x‖ of every feature and example, [features, examples]."""
    count = features.shape[1]
    if not features.requires_grad:
        return features.new_zeros(count, len(inputs))
    rows = torch.eye(count, device=features.device, dtype=features.dtype)
    chunk = max(1, _AT_ONCE // len(inputs))
    parts = [_derivatives(features, inputs, rows[at : at + chunk]) for at in range(0, count, chunk)]
    return torch.cat([part.flatten(2).norm(dim=2) for part in parts])


def _derivatives(features: Tensor, inputs: Tensor, rows: Tensor) -> Tensor:
    """∂r_i/∂x for the features that `rows` choose, [rows, examples, …]."""
    chosen = rows[:, None].expand(len(rows), *features.shape)
    try:
        return _differentiate(features, inputs, chosen, at_once=True)
    except RuntimeError:
        # Some layers (recurrent ones for instance) allow one at a time only.
        each: Sequence[Tensor] = [_differentiate(features, inputs, one, at_once=False) for one in chosen]
        return torch.stack(list(each))


def _differentiate(features: Tensor, inputs: Tensor, chosen: Tensor, *, at_once: bool) -> Tensor:
    return torch.autograd.grad(
        features, inputs, chosen, retain_graph=True, is_grads_batched=at_once, allow_unused=True, materialize_grads=True
    )[0]


def weight_name(layer: str) -> str:
    """The name of a layer's weight; a network that is one layer has no name of its own."""
    return f"{layer}.weight" if layer else "weight"
