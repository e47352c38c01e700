"""Candidates that are made by a prior: its latents are searched, or its weights, instead of pixels."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Generator, Tensor
from torch.func import vmap

from leakscope import rng as random
from leakscope.errors import UsageError
from leakscope.files import read_tensors, write_tensors
from leakscope.matching.candidates.pixels import FIXED, Candidate, Variables
from leakscope.priors import Prior, describe, recognise, smooth_prior
from leakscope.types import Observation, limits_of

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
        shape = (count, *fit_prior(self.prior, seen).latent_shape)
        if self.begin == "mean":
            return {LATENT: like.new_zeros(shape)}
        draw = random.uniform if self.begin == "uniform" else random.normal
        return {LATENT: draw(shape, rng, like=like)}

    def decode(self, seen: Observation, variables: Variables) -> Tensor:
        """Decode all groups' latents at once."""
        latents = self.latents(variables)
        images = fit_prior(self.prior, seen).decode(latents.flatten(0, 1))
        return _rescale(seen, images).unflatten(0, latents.shape[:2])

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
        own = fit_prior(self.prior, seen).weights
        copies = {_WEIGHT + name: value.expand(count, *value.shape).clone() for name, value in own.items()}
        return {KEPT_LATENT: self.latents.clone(), **copies}

    def decode(self, seen: Observation, variables: Variables) -> Tensor:
        """Decode each latent with its own weights."""
        latents, prior = variables[KEPT_LATENT], fit_prior(self.prior, seen)
        weights = {name: variables[_WEIGHT + name].flatten(0, 1) for name in prior.weights}
        images = _decode_each(prior, latents.flatten(0, 1), weights)
        return _rescale(seen, images).unflatten(0, latents.shape[:2])


def fit_prior(prior: Prior, seen: Observation) -> Prior:
    """The prior for the inputs behind `seen`, or UnsuitableError where it makes other images."""
    return prior.at(seen.input_shape, like=_like(seen))


def _decode_each(prior: Prior, latents: Tensor, weights: Variables) -> Tensor:
    if len(latents) == 1:
        # One image needs no batched kernels, which are slower.
        return prior.decode(latents, {name: value[0] for name, value in weights.items()})
    together = vmap(lambda latent, own: prior.decode(latent[None], own)[0])
    return together(latents, weights)


def _rescale(seen: Observation, images: Tensor) -> Tensor:
    """Images of a prior, which are in [0, 1], in the range of the data under attack."""
    low, high = limits_of(seen.bounds, images)
    return images if seen.bounds in (None, (0.0, 1.0)) else low + (high - low) * images


def _like(seen: Observation) -> Tensor:
    return torch.empty(0, device=seen.device, dtype=seen.dtype)


SMOOTH = "smooth"


def load_prior(path: str | os.PathLike[str], *, budget_mb: float | None = None) -> Prior:
    """Read a prior that `save_prior` wrote, or the decoder of a tiny latent autoencoder.

    Raises:
        BadInputError: The file is damaged or holds something else.
    """
    tensors, metadata = read_tensors(path, budget_mb=budget_mb)
    return recognise(tensors, metadata, name=Path(path).name)


def save_prior(path: str | os.PathLike[str], prior: Prior) -> Path:
    """Write a trained prior as safetensors with its architecture; whole or not at all."""
    tensors, metadata = describe(prior)
    return write_tensors(path, tensors, metadata)


def as_prior(value: Prior | str | os.PathLike[str] | None, *, attack: str) -> Prior:
    """The prior that an option names: a value, "smooth", or a file."""
    if isinstance(value, Prior):
        return value
    if value == SMOOTH:
        return smooth_prior()
    if value is None or not isinstance(value, str | os.PathLike):
        raise UsageError(
            f"attack {attack!r} needs prior=…, got {value!r}; train one with "
            "'leakscope prior train --data fashion-mnist --out prior.safetensors' and pass prior=prior.safetensors, "
            "or pass prior=smooth, which needs no training"
        )
    return load_prior(value)
