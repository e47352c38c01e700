"""From the update to the picture: the linear layer in closed form, then block by block down to the pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from leakscope import rng as random
from leakscope.attacks.closed.pooling.belief import Belief, GaussianPrior, Sweeps, infer
from leakscope.attacks.closed.pooling.exact import exact
from leakscope.attacks.closed.pooling.gradient_evidence import BlockFacts
from leakscope.attacks.closed.pooling.pooled_blocks import PooledBlock, take_apart
from leakscope.attacks.closed.pooling.smoothness import Smoothness, natural
from leakscope.errors import UnsuitableError
from leakscope.matching.replays import OneGradient
from leakscope.types import Observation, Tensors

# Dense covariances of the inputs are inverted at every pass.
_LARGEST = 4_096
_SAMPLES_PER_INPUT, _AT_ONCE = 5, 128
# Hidden layers are over-determined and can be read exactly; pixels are not, and a wrong winner must stay cheap.
_HIDDEN, _PIXELS = Sweeps(30, 0.1, 1e-3), Sweeps(20, 0.1, 5e-3)
# Features may leave the range of the activation by rounding, not by more.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class _SampledPrior:
    """The Gaussian with the moments of samples; `scale` multiplies its covariance."""

    mean: Tensor
    inverse: Tensor
    scale: float = 1.0

    def precision(self) -> Tensor:
        """Inverse covariance."""
        return self.inverse / self.scale

    def adapt(self, mean: Tensor, covariance: Tensor) -> _SampledPrior:
        """With the scale that the belief has on average."""
        away = mean - self.mean
        energy = away @ self.inverse @ away + (self.inverse * covariance).sum()
        return replace(self, scale=min(max(float(energy) / len(mean), 0.1), 10.0))


def read_pooled(seen: Observation, seed: int = 0, *, passes: int = 20, gradient_from: float = 0.2) -> Tensor:
    """The picture [1, C, H, W] behind one gradient of one example, on the device and in the dtype of `seen`.

    Beliefs about winners can lock into a wrong solution. That shows in the match with the update, which is for the
    caller to check; another share `gradient_from` of passes without the weight gradient takes another way.

    Raises:
        UnsuitableError: The network, the update or the number of examples do not fit.
    """
    blocks, linear = take_apart(seen)
    _check(seen, blocks)
    gradients = {name: value.double() for name, value in OneGradient().target(seen).items()}
    values, signal = _above(seen, blocks[-1], linear, gradients)
    deviation = torch.zeros_like(values)
    # `_check` has refused everything but pictures.
    bounds = seen.bounds
    assert isinstance(bounds, tuple)
    hidden, pixels = (replace(each, gradient_from=gradient_from) for each in (_HIDDEN, replace(_PIXELS, count=passes)))
    prior = natural(blocks[0].shape, bounds, like=values)
    for place in reversed(range(1, len(blocks))):
        samples = _sample_moments(prior, blocks[:place], random.generator(seed, "pooled", place), bounds=bounds)
        known = _known(blocks[place], values, signal, deviation=deviation, gradients=gradients)
        belief = _hidden(blocks[place], known, prior=samples, passes=hidden)
        signal = _backward(blocks[place], values, signal, belief)
        values = blocks[place - 1].bend.inside(belief.mean)
        deviation = belief.covariance.diagonal().clamp_min(0).sqrt()
    known = _known(blocks[0], values, signal, deviation=deviation, gradients=gradients)
    belief = _require(blocks[0], _sweep(blocks[0], known, prior=prior, passes=pixels))
    return belief.mean.clamp(*bounds).reshape(1, *seen.input_shape).to(seen.dtype)


def _hidden(block: PooledBlock, known: BlockFacts, *, prior: GaussianPrior, passes: Sweeps) -> Belief:
    """A hidden block's inputs exactly, if need be at the second, wary attempt; else as the first one believes them."""
    first: Belief | None = None
    for wary in (False, True):
        belief = _sweep(block, known, prior=prior, passes=replace(passes, wary=wary))
        solved = None if belief is None else exact(block, known, prior=prior, belief=belief)
        if solved is not None:
            return solved
        first = first or belief
    return _require(block, first)


def _sweep(block: PooledBlock, known: BlockFacts, *, prior: GaussianPrior, passes: Sweeps) -> Belief | None:
    """What is believed of the block's inputs in the end; None where the passes ended in nonsense."""
    try:
        belief = infer(block, known, prior=prior, passes=passes)
    except torch.linalg.LinAlgError:
        return None
    return belief if bool(torch.isfinite(belief.mean).all()) else None


def _require(block: PooledBlock, belief: Belief | None) -> Belief:
    if belief is None:
        raise UnsuitableError(
            f"reading through max pooling did not settle at {block.name!r}: what the update says of it is contradictory"
        )
    return belief


def _check(seen: Observation, blocks: Sequence[PooledBlock]) -> None:
    if seen.num_examples not in (None, 1):
        raise UnsuitableError(f"reading through max pooling is for one example, got {seen.num_examples}")
    if seen.update.kind == "delta" and (seen.local is None or not seen.local.is_one_step(1)):
        raise UnsuitableError("reading through max pooling needs one gradient, got a delta of several or unknown steps")
    most = max(block.inputs for block in blocks)
    if most > _LARGEST:
        raise UnsuitableError(f"reading through max pooling inverts matrices of at most {_LARGEST} rows, got {most}")


def _above(seen: Observation, block: PooledBlock, linear: str, gradients: Tensors) -> tuple[Tensor, Tensor]:
    """What the linear layer received, Σ δ_i G_i / Σ δ_i², and the backward signal Wᵀδ that it sent down."""
    weight, bias = gradients[f"{linear}.weight"], gradients[f"{linear}.bias"]
    energy = bias.square().sum()
    if float(energy) == 0.0:
        raise UnsuitableError(f"reading through max pooling needs a bias gradient of {linear!r}, got zeros")
    values = bias @ weight / energy
    outside = (block.bend.low - values).clamp_min(0) + (values - block.bend.high).clamp_min(0)
    if float(outside.max()) > _ROUNDING:
        raise UnsuitableError(
            "the features read off the linear layer are none its activation can give: the update was changed or is of "
            "several examples"
        )
    own = dict(seen.model.named_parameters())[f"{linear}.weight"].detach().double()
    return block.bend.inside(values), own.T @ bias


def _known(block: PooledBlock, values: Tensor, signal: Tensor, *, deviation: Tensor, gradients: Tensors) -> BlockFacts:
    """The block's own share of the update, freed from a normalisation before it.

    A feature near the edge of the activation's range says little of what came before: its deviation is divided by the
    slope there.
    """
    shape = (len(block.weight), len(block.windows))
    maxima, slope = block.bend.inverse(values).reshape(shape), block.bend.slope(values).reshape(shape)
    before = signal.reshape(shape) * slope
    gradient = gradients[f"{block.name}.weight"].flatten(1)
    gradient = gradient * block.deviation + before.sum(1, keepdim=True) * block.mean
    return BlockFacts(maxima, before, gradient, deviation.reshape(shape) / slope)


def _backward(block: PooledBlock, values: Tensor, signal: Tensor, belief: Belief) -> Tensor:
    """The signal at the block's inputs: through the likeliest winners and the convolution."""
    before = (signal * block.bend.slope(values)).reshape(belief.odds.shape[:2])
    winners = block.windows.gather(1, belief.odds.argmax(2).T).T
    at_patches = before.new_zeros(len(before), block.columns.shape[1]).scatter_(1, winners, before)
    spread = block.weight.T @ at_patches
    return functional.fold(spread[None], block.shape[1:], block.kernel, stride=block.stride).flatten()


def _sample_moments(
    prior: Smoothness, blocks: Sequence[PooledBlock], rng: torch.Generator, *, bounds: tuple[float, float]
) -> _SampledPrior:
    """Moments of what reaches a hidden block, from pictures drawn from the prior."""
    size = torch.Size(blocks[-1].pooled_shape).numel()
    found = []
    for _ in range(-(-_SAMPLES_PER_INPUT * size // _AT_ONCE)):
        features = prior.sample(_AT_ONCE, rng, bounds=bounds)
        for block in blocks:
            features = block.outputs(features)
        found.append(features.flatten(1))
    samples = torch.cat(found)
    away = samples - samples.mean(0)
    covariance = away.T @ away / len(samples)
    # Samples say nothing about the smallest directions.
    return _SampledPrior(samples.mean(0), torch.linalg.inv(covariance + 1e-6 * torch.eye(size).to(covariance)))
