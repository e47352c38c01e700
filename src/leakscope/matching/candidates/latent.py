"""Candidates that are made by a prior: its latents are searched, or its weights, instead of pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor
from torch.func import vmap

from leakscope import rng as random
from leakscope.matching.candidates.pixels import Candidate
from leakscope.matching.penalties.penalty import Penalty
from leakscope.matching.trial import Trial
from leakscope.matching.variables import FIXED, Variables
from leakscope.priors import Prior
from leakscope.types import Observation

LATENT = "latent"
KEPT_LATENT = FIXED + LATENT
_WEIGHT = "weight."


@dataclass(frozen=True)
class Latent(Candidate):
    """x = G(z): only what the prior can make is searched.

    `begin` draws z from N(0, 1), from U[0, 1], or takes the prior's mean, 0. `reach` squashes the
    searched numbers, z = reach · tanh(u / reach), for searches that would wander far out.
    """

    prior: Prior
    begin: Literal["normal", "uniform", "mean"] = "normal"
    reach: float | None = None

    def start(self, seen: Observation, count: int, rng: Generator) -> Variables:
        """One latent for each example."""
        like = _like(seen)
        shape = (count, *fitted(self.prior, seen).latent_shape)
        if self.begin == "mean":
            return {LATENT: like.new_zeros(shape)}
        draw = random.uniform if self.begin == "uniform" else random.normal
        return {LATENT: draw(shape, rng, like=like)}

    def decode(self, seen: Observation, variables: Variables) -> Tensor:
        """Decode all groups' latents at once."""
        latents = self.latents(variables)
        images = fitted(self.prior, seen).decode(latents.flatten(0, 1))
        return _ranged(seen, images).unflatten(0, latents.shape[:2])

    def latents(self, variables: Variables) -> Tensor:
        """What the decoder is fed."""
        free = variables[LATENT]
        return free if self.reach is None else self.reach * (free / self.reach).tanh()


@dataclass(frozen=True, eq=False)
class TunedWeights(Candidate):
    """x_i = G(z_i; w_i): latents stay, and each image has a copy of the generator's weights to itself."""

    prior: Prior
    latents: Tensor

    def start(self, seen: Observation, count: int, rng: Generator) -> Variables:
        """The prior's own weights for each example, beside its latent."""
        own = fitted(self.prior, seen).weights
        copies = {_WEIGHT + name: value.expand(count, *value.shape).clone() for name, value in own.items()}
        return {KEPT_LATENT: self.latents.clone(), **copies}

    def decode(self, seen: Observation, variables: Variables) -> Tensor:
        """Decode each latent with its own weights."""
        latents, prior = variables[KEPT_LATENT], fitted(self.prior, seen)
        weights = {name: variables[_WEIGHT + name].flatten(0, 1) for name in prior.weights}
        images = _each_decoded(prior, latents.flatten(0, 1), weights)
        return _ranged(seen, images).unflatten(0, latents.shape[:2])


@dataclass(frozen=True)
class LatentMoments(Penalty):
    """KL(N(μ, σ²) ‖ N(0, 1)) of each latent's own mean and variance: keeps it typical of the prior.

    −½ (1 + log σ² − μ² − σ²), summed over the examples.
    """

    weight: float = 0.1
    relative: bool = False

    def value(self, trial: Trial) -> Tensor:
        """Return the divergence per group."""
        latents = trial.variables[LATENT].flatten(2)
        mean, variance = latents.mean(2), latents.var(2, correction=0)
        return 0.5 * (mean.square() + variance - 1 - variance.clamp_min(1e-12).log()).sum(1)


def fitted(prior: Prior, seen: Observation) -> Prior:
    """The prior for the inputs behind `seen`, or UnsuitableError where it makes other images."""
    return prior.at(seen.input_shape, like=_like(seen))


def _each_decoded(prior: Prior, latents: Tensor, weights: Variables) -> Tensor:
    if len(latents) == 1:
        # One image needs no batched kernels, which are slower.
        return prior.decode(latents, {name: value[0] for name, value in weights.items()})
    together = vmap(lambda latent, own: prior.decode(latent[None], own)[0])
    return together(latents, weights)


def _ranged(seen: Observation, images: Tensor) -> Tensor:
    """Images of a prior, which are in [0, 1], in the range of the data under attack."""
    low, high = seen.bounds or (0.0, 1.0)
    return images if (low, high) == (0.0, 1.0) else low + (high - low) * images


def _like(seen: Observation) -> Tensor:
    return torch.empty(0, device=seen.device, dtype=seen.dtype)
