"""Trap weights: rows of the first linear layer that a rectifier leaves open for few examples only.

Half of a row's weights are negative, and larger by a factor than the positive half: for most inputs the sum is below
zero. A row that one example of the batch opens holds that example, times a number that was shared as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakscope import rng as random
from leakscope.attack import Attack, CraftContext, Crafted, Watch
from leakscope.attacks.closed.linear.isolate import Isolated, isolate
from leakscope.attacks.closed.linear.layer_inputs import find_shared_layers, gradients, normalise
from leakscope.attacks.malicious.anatomy import examine
from leakscope.attacks.malicious.kept_secret import kept_secret
from leakscope.attacks.malicious.mixtures import describe_mixtures, fail
from leakscope.errors import UnsuitableError, UsageError
from leakscope.types import Observation, Reconstruction, Status

PAPER = (
    "Boenisch et al.: When the Curious Abandon Honesty: Federated Learning Is Not Private, EuroS&P 2023 "
    "(arXiv:2112.02918)"
)
# A row is meant to open for an input in twenty: 1.64 deviations.
_RARE = 1.64
# √E[x²] · 2 / (E[x] · E|w|) for pixels of photographs and normal weights.
_SPREAD = 2.8


@dataclass(frozen=True)
class TrapSecret:
    """What the server remembers: the layer it set."""

    layer: str


@dataclass(frozen=True)
class TrapWeights(Attack):
    """Reads the examples that alone opened rows of a first linear layer, and proves each by a replay.

    Needs a rectified linear layer with a bias that receives the input itself. How many examples stand alone is chance:
    it falls with the size of the batch and rises with the width of the layer. The rest is not returned: a mixture shows
    no one.
    """

    scale: float | None = None
    share: float = 1.0
    name: str = "trap-weights"
    paper: str = PAPER
    is_malicious = True

    def _craft(self, model: nn.Module, context: CraftContext) -> Crafted:
        name, layer = _first_layer(model, context.input_shape)
        rng = random.generator(context.seed, self.name)
        rows = max(1, round(self.share * layer.out_features))
        chosen = torch.randperm(layer.out_features, generator=rng)[:rows]
        size = float(layer.weight.detach().std())
        with torch.no_grad():
            layer.weight[chosen] = size * _trap(rows, layer.in_features, scale=self._scale(layer), rng=rng).to(
                layer.weight
            )
            layer.bias[chosen] = 0.0
        return Crafted(model, TrapSecret(name))

    def _scale(self, layer: nn.Linear) -> float:
        return 1 + _RARE * _SPREAD / math.sqrt(layer.in_features) if self.scale is None else self.scale

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        layer = _trapped_layer(seen)
        opened = int((gradients(seen, layer)[1] != 0).sum())
        if not opened:
            return fail(seen, "no example opened a row: the layer has no gradient")
        found = isolate(seen, layer, from_rows=1)
        note = f"{opened} rows of {layer!r} were opened"
        if not found:
            reason = f"{note}, and no example is proven to have opened one alone: they hold mixtures, which show no one"
            return fail(seen, reason)
        inputs = torch.cat([one.inputs for one in found])
        loss = _unexplained(seen, layer, inputs)
        targets = _targets(found, inputs)
        notes = (*seen.notes, note, *describe_mixtures([1] * len(found), examples=seen.num_examples))
        members = (1,) * len(found)
        return Reconstruction(inputs, targets, loss, Status.OK, (loss,), None, 1, notes, members=members)

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """The share of the layer's gradient that lies outside what the results span, computed again."""
        return _unexplained(seen, _trapped_layer(seen), reconstruction.inputs)


def trap_weights(*, scale: float | None = None, share: float = 1.0) -> TrapWeights:
    """A malicious server whose first layer opens each row for few examples.

    Args:
        scale: how much larger the negative half of a row is than the positive one; None opens a row for about one
            photograph in twenty.
        share: of the layer's rows, those that are set.
    """
    if scale is not None and not scale > 0:
        raise UsageError(f"trap-weights needs scale > 0, got {scale}")
    if not 0 < share <= 1:
        raise UsageError(f"trap-weights needs 0 < share ≤ 1, got {share}")
    return TrapWeights(scale, share)


def _trap(rows: int, width: int, *, scale: float, rng: torch.Generator) -> Tensor:
    """Rows of ±|N(0, 1)|, half of each negative and `scale` times as large, in random places."""
    sizes = random.normal((rows, width), rng).abs()
    order = random.uniform((rows, width), rng).argsort(1)
    negative = order < width // 2
    return torch.where(negative, -scale * sizes, sizes)


def _first_layer(model: nn.Module, shape: tuple[int, ...] | None) -> tuple[str, nn.Linear]:
    anatomy = examine(model, shape, attack="trap-weights")
    stage = anatomy.linear[0]
    layer = model.get_submodule(stage.name)
    assert isinstance(layer, nn.Linear)
    is_rectified = stage.response == "linear" and stage.slope == 0
    if anatomy.convolutions or layer.bias is None or len(anatomy.linear) < 2 or not is_rectified:
        raise UnsuitableError(
            "trap-weights needs a first linear layer with a bias and a ReLU behind it that receives the input itself, "
            f"and {stage.name!r} is none: there is a convolution, another activation or no bias; use mkor or "
            "class-fishing"
        )
    return stage.name, layer


def _trapped_layer(seen: Observation) -> str:
    layer = kept_secret(seen, TrapSecret, attack="trap-weights").layer
    if layer not in find_shared_layers(seen):
        raise UnsuitableError(f"trap-weights needs the gradient of layer {layer!r}, which was not shared; share it")
    return layer


def _targets(found: list[Isolated], inputs: Tensor) -> Tensor | None:
    labels = [one.target for one in found if one.target is not None]
    return torch.tensor(labels, device=inputs.device) if len(labels) == len(found) else None


def _unexplained(seen: Observation, layer: str, inputs: Tensor) -> float:
    """‖G − G Q Qᵀ‖ / ‖G‖ with G = [weight, bias] gradient and Q spanning the results with a 1 behind each."""
    weight, bias = gradients(seen, layer)
    rows = torch.cat([weight, bias[:, None]], 1).double()
    received = normalise(seen, inputs).flatten(1)
    basis = torch.cat([received, received.new_ones(len(received), 1)], 1).double()
    span = torch.linalg.qr(basis.T).Q
    return float((rows - rows @ span @ span.T).norm() / rows.norm().clamp_min(1e-300))
