"""Robbing the Fed: a layer in front of the network whose rows sort the examples into bins.

All rows of the layer are the same measurement h, with a bias for each bin: row i passes the examples with h·x > b_i.
The layer behind it treats all rows alike, so the difference of the gradients of neighbouring rows is that of the
examples between their biases: δ(x, 1) for one, of which the quotient is the example.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakscope.attack import Attack, CraftContext, Crafted, Watch
from leakscope.attacks.malicious.anatomy import guess_input_shape
from leakscope.attacks.malicious.kept_secret import kept_secret
from leakscope.attacks.malicious.mixtures import describe_mixtures, fail, known_members, settle_mixtures
from leakscope.errors import UnsuitableError, UsageError
from leakscope.matching.replays import scale_known
from leakscope.matching.replays.replay import gradient_factor
from leakscope.types import Observation, Reconstruction

PAPER = (
    "Fowl et al.: Robbing the Fed: Directly Obtaining Private Data in Federated Learning with Modified Models, "
    "ICLR 2022"
)
# The release's measurement: a cosine of 32 half periods along the flattened picture; of small ones, one in 96 numbers.
_MODE, _LEAST_PERIOD = 32, 96
# Pixels in [0, 1] have about this deviation; the release measures normalised ones.
_DEVIATION = 0.25
# The release's first bin. Ours is lower where an input in [0, 1] could be below that.
_LOWEST = -10.0
# A bin's bias difference below this share of the largest bias gradient is rounding.
_EMPTY = 1e-6
# How well one example has to explain its bin: chance grows with the number of labels that are tried.
_PROOF, _LOOSEST = 1e-2, 1e-3
_INSIDE = 1e-2


@dataclass(frozen=True)
class ImprintSecret:
    """What the server remembers: where the layer is, and between which values each bin lies."""

    layer: str
    spread: str
    network: str
    edges: tuple[float, ...]


@dataclass(frozen=True)
class RobbingTheFed(Attack):
    """Reads every example that has a bin for itself, exactly.

    Needs a client that accepts two linear layers in front of the agreed network, which any look at the architecture
    shows. Examples that share a bin come back as a mixture, weighted by their gradients.
    """

    bins: int = 64
    gain: float = 1.0
    name: str = "robbing-the-fed"
    paper: str = PAPER
    is_malicious = True
    changes_architecture = True

    def _craft(self, model: nn.Module, context: CraftContext) -> Crafted:
        shape = context.input_shape or guess_input_shape(model)
        size = math.prod(shape)
        like = next(model.parameters())
        measurement = _measurement(size)
        edges = _edges(self.bins, lowest=float(measurement.clamp_max(0).sum()))
        imprint, spread = (nn.Linear(*sides).to(like) for sides in ((size, self.bins), (self.bins, size)))
        with torch.no_grad():
            imprint.weight.copy_(self.gain * measurement.to(like).expand(self.bins, size))
            imprint.bias.copy_(-self.gain * torch.tensor(edges).to(like))
            # Every row's output goes everywhere with the same weight: all rows see one gradient.
            spread.weight.fill_(1 / (self.gain * self.bins))
            # The network sees a grey that does not depend on where the first bin is.
            spread.bias.fill_((edges[0] - _LOWEST) / self.bins)
        layers = OrderedDict(
            flatten=nn.Flatten(),
            imprint=imprint,
            rectify=nn.ReLU(),
            spread=spread,
            shape=nn.Unflatten(1, shape),
            network=model,
        )
        crafted = nn.Sequential(layers)
        crafted.training = model.training
        return Crafted(crafted, ImprintSecret("imprint", "spread", "network", (*edges, math.inf)))

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        secret, filled = _secret(seen), _read_bins(seen)
        if not len(filled.places):
            return fail(seen, "no bin of the imprint holds an example: the gradient did not reach it")
        inputs = filled.inputs.reshape(-1, *seen.input_shape).to(seen.dtype)
        members, labels = _prove(seen, secret, filled)
        loss = _misfit(seen, inputs)
        status = settle_mixtures(members, examples=seen.num_examples)
        notes = (
            *seen.notes,
            f"{len(filled.places)} of {self.bins} bins of an imprint in front of the network hold something",
            *describe_mixtures(members, examples=seen.num_examples),
        )
        counted = known_members(members)
        return Reconstruction(inputs, labels, loss, status, (loss,), None, 1, notes, members=counted)

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """What the results leave unexplained of the differences of rows, computed again."""
        return _misfit(seen, reconstruction.inputs)


def robbing_the_fed(*, bins: int = 64, gain: float = 1.0) -> RobbingTheFed:
    """A malicious server that puts a layer of bins in front of the network.

    Args:
        bins: rows of the layer: as many examples can be told apart at most.
        gain: size of its weights; what it takes from the first layer the second gives back.
    """
    if bins < 2 or not gain > 0:
        raise UsageError(f"robbing-the-fed needs bins ≥ 2 and gain > 0, got {bins} and {gain}")
    return RobbingTheFed(bins, gain)


def _measurement(size: int) -> Tensor:
    """h of the release, per deviation of pixels: cos(π/n (j + ½) m) · 4m/n."""
    places = torch.arange(size, dtype=torch.float64)
    mode = min(_MODE, max(1, size // _LEAST_PERIOD))
    return torch.cos(math.pi / size * (places + 0.5) * mode) * 4 * mode / size / _DEVIATION


def _edges(bins: int, *, lowest: float) -> list[float]:
    """A value that every example is above, then quantiles of a Laplace distribution of deviation 1."""
    shares = torch.arange(1, bins, dtype=torch.float64) / bins
    centred = shares - 0.5
    quantiles = -centred.sign() * torch.log1p(-2 * centred.abs()) / math.sqrt(2)
    return [min(_LOWEST, lowest), *quantiles.tolist()]


def _secret(seen: Observation) -> ImprintSecret:
    return kept_secret(seen, ImprintSecret, attack="robbing-the-fed")


@dataclass(frozen=True, eq=False)
class _FilledBins:
    """Bins with something in them: their places, what they hold, and their bias gradient."""

    places: Tensor
    inputs: Tensor
    slopes: Tensor


def _differences(seen: Observation) -> tuple[Tensor, Tensor]:
    """Gradient of each row less that of the next: what the examples of one bin contributed."""
    layer = _secret(seen).layer
    names = (f"{layer}.weight", f"{layer}.bias")
    if any(name not in seen.update.tensors for name in names):
        raise UnsuitableError(f"robbing-the-fed needs the gradient of layer {layer!r}, which was not shared; share it")
    factor = float(gradient_factor(seen))
    weight, bias = (factor * seen.update.tensors[name].double() for name in names)
    return (
        torch.cat([weight[:-1] - weight[1:], weight[-1:]]),
        torch.cat([bias[:-1] - bias[1:], bias[-1:]]),
    )


def _read_bins(seen: Observation) -> _FilledBins:
    weight, bias = _differences(seen)
    layer = _secret(seen).layer
    largest = float(seen.update.tensors[f"{layer}.bias"].abs().max()) * abs(float(gradient_factor(seen)))
    places = (bias.abs() > _EMPTY * max(largest, 1e-30)).nonzero().flatten()
    return _FilledBins(places, weight[places] / bias[places, None], bias[places])


def _prove(seen: Observation, secret: ImprintSecret, filled: _FilledBins) -> tuple[list[int | None], Tensor | None]:
    """How many examples each bin holds, 2 for any mixture, and their labels; nothing where the scale is not known.

    The network behind the imprint sees a grey picture that follows from h·x alone. For one example with label c the
    bias gradient of its bin can be computed, and has to be the one that was observed.
    """
    if seen.num_examples is None or not scale_known(seen):
        return [None] * len(filled.places), None
    expected = _slopes(seen, secret, filled.inputs.to(seen.dtype))
    errors = (filled.slopes[:, None] * seen.num_examples / expected - 1).abs().nan_to_num(torch.inf)
    least, labels = errors.min(1)
    is_valid = ((filled.inputs > -_INSIDE) & (filled.inputs < 1 + _INSIDE)).all(1)
    proof = min(_PROOF / seen.num_classes, _LOOSEST)
    alone = is_valid & (least < proof)
    return [1 if one else 2 for one in alone.tolist()], labels


def _slopes(seen: Observation, secret: ImprintSecret, inputs: Tensor) -> Tensor:
    """∂loss/∂(sum of the rows' outputs) for every example and label, [n, classes]."""
    layer, spread = (seen.model.get_submodule(name) for name in (secret.layer, secret.spread))
    network = seen.model.get_submodule(secret.network)
    assert isinstance(spread, nn.Linear)
    column = spread.weight.detach()[:, 0]

    with torch.enable_grad():
        totals = layer(inputs.flatten(1)).relu().sum(1).detach().requires_grad_()
        pictures = (totals[:, None] * column + spread.bias.detach()).reshape(-1, *seen.input_shape)
        found = seen.task.check_output(network(pictures))
        # The derivative of all scores by the one total of their example: that of a product that is linear in `weights`.
        weights = torch.zeros_like(found, requires_grad=True)
        by_total = torch.autograd.grad((found * weights).sum(), totals, create_graph=True)[0]
        speed = torch.autograd.grad(by_total.sum(), weights)[0]
    slopes = [_slope_of(seen, found, label) for label in range(seen.num_classes)]
    return torch.stack([(slope * speed).sum(1) for slope in slopes], 1).double()


def _slope_of(seen: Observation, found: Tensor, label: int) -> Tensor:
    """∂loss/∂scores of each example by itself."""
    with torch.enable_grad():
        scores = found.detach().requires_grad_()
        labels = torch.full((len(scores),), label, device=scores.device)
        return torch.autograd.grad(seen.loss(scores, labels) * len(scores), scores)[0]


def _misfit(seen: Observation, inputs: Tensor) -> float:
    """‖ΔG − Δb xᵀ‖ / ‖ΔG‖ over the bins that hold something."""
    weight, bias = _differences(seen)
    places = _read_bins(seen).places
    gap = weight[places] - bias[places, None] * inputs.flatten(1).to(weight)
    return float(gap.norm() / weight[places].norm().clamp_min(1e-300))
