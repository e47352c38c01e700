"""Training the small generator as the decoder of a variational autoencoder, step by step.

The state after any number of steps is a name → tensor map: written down and read back, training
goes on to the very bytes an uninterrupted run ends with. All randomness of step k comes from
the seed and k.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope import rng as random
from leakscope.counts import check_count
from leakscope.errors import BadInputError, UsageError
from leakscope.priors.convolutional import ConvDecoder, initialise
from leakscope.priors.prior import Prior
from leakscope.tensors import detach

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8
_STEP = "step"
# Enough images to tell the covariance of some hundred latents.
_FITTED_ON = 4_096
# Beyond these a training would neither end nor fit into memory.
_MOST = {"latent": 4_096, "width": 256, "epochs": 100_000, "batch_size": 1_000_000}
# Copies of the weights that are stored beside them: Adam's moments.
_MOMENTS = ("first", "second")


@dataclass(frozen=True)
class TrainingSettings:
    """How a prior is trained; the same settings on the same images gives the same bytes."""

    latent: int = 64
    width: int = 16
    epochs: int = 8
    batch_size: int = 64
    lr: float = 2e-3
    seed: int = 0

    def __post_init__(self) -> None:
        for option, most in _MOST.items():
            if getattr(self, option) < 1:
                raise UsageError(f"training a prior needs {option} ≥ 1, got {getattr(self, option)}")
            check_count(getattr(self, option), f"training a prior: {option}", most=most)
        if not self.lr > 0:
            raise UsageError(f"training a prior needs lr > 0, got {self.lr}")

    def steps(self, count: int) -> int:
        """How many steps training on `count` images takes."""
        return self.epochs * math.ceil(count / self.batch_size)


@dataclass(frozen=True)
class TrainingProgress:
    """After a step: how far training is, and the root mean squared error of the last batch."""

    step: int
    total: int
    rmse: float


class Trainer:
    """Weights, Adam's moments and the number of steps taken; `state` holds all of it."""

    def __init__(self, images: Tensor, settings: TrainingSettings, state: Mapping[str, Tensor] | None = None) -> None:
        """Begin at the start, or where `state` ended."""
        if images.ndim != 4 or len(images) == 0:
            raise BadInputError(f"a prior is trained on images [n, C, H, W], got {list(images.shape)}")
        self.images, self.settings = images, settings
        shape = (images.shape[1], images.shape[2], images.shape[3])
        self.decoder = ConvDecoder(shape, settings.latent, settings.width)
        self.total = settings.steps(len(images))
        self._restore(self._begin() if state is None else state)

    def _begin(self) -> dict[str, Tensor]:
        rng = random.generator(self.settings.seed, "prior", "weights")
        weights = initialise(self._shapes(), rng)
        blank = {f"{moment}/{name}": torch.zeros_like(w) for moment in _MOMENTS for name, w in weights.items()}
        return {_STEP: torch.zeros((), dtype=torch.long), **{f"weight/{n}": w for n, w in weights.items()}, **blank}

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {**self.decoder.shapes(), **self.decoder.encoder_shapes()}

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        kinds = ("weight", *_MOMENTS)
        expected = {f"{kind}/{name}": shape for kind in kinds for name, shape in self._shapes().items()}
        if {name: tuple(value.shape) for name, value in state.items()} != {**expected, _STEP: ()}:
            raise BadInputError("the training state belongs to another prior; remove it or choose another output file")
        self.step = int(state[_STEP])
        self.weights, self.first, self.second = (
            {name: state[f"{kind}/{name}"].clone() for name in self._shapes()} for kind in kinds
        )

    def state(self) -> dict[str, Tensor]:
        """All that training needs to go on from here."""
        parts = {"weight": self.weights, "first": self.first, "second": self.second}
        found = {f"{kind}/{name}": value for kind, values in parts.items() for name, value in values.items()}
        return {_STEP: torch.tensor(self.step), **detach(found)}

    def prior(self, about: str = "") -> Prior:
        """The decoder as it stands, with latents turned and scaled so that N(0, 1) is what it was fed.

        The latents of real images are never quite standard normal. Their mean m and covariance LLᵀ
        go into the linear layer, W(Lz + m) + b, so that samples look like images, and a step of the
        same length means as much in every direction.
        """
        weights = detach({name: self.weights[name] for name in self.decoder.shapes()})
        mean, factor = self._latent_moments()
        linear = weights["linear.weight"]
        weights["linear.bias"] = weights["linear.bias"] + linear @ mean
        weights["linear.weight"] = linear @ factor
        return Prior(self.decoder, weights, about)

    def _latent_moments(self) -> tuple[Tensor, Tensor]:
        """Mean, and principal axes of the covariance scaled to their deviations, strongest first."""
        with torch.no_grad():
            parts = [self.decoder.encode(self.weights, part) for part in self.images[:_FITTED_ON].split(256)]
        means, spreads = (torch.cat(part).double() for part in zip(*parts, strict=True))
        centre = means - means.mean(0)
        covariance = centre.T @ centre / len(means) + spreads.exp().mean(0).diag()
        values, vectors = torch.linalg.eigh(covariance)
        factor = (vectors * values.clamp_min(0).sqrt()).flip(1)
        return means.mean(0).float(), factor.float()

    def run(self) -> Iterator[TrainingProgress]:
        """Take the steps that are left, one at a time."""
        while self.step < self.total:
            yield TrainingProgress(self.step + 1, self.total, self._advance())

    def _advance(self) -> float:
        images = self._batch()
        leaves = {name: value.requires_grad_() for name, value in self.weights.items()}
        with torch.enable_grad():
            loss, error = self._loss(leaves, images)
            grads = torch.autograd.grad(loss, list(leaves.values()))
        self._adam(dict(zip(leaves, grads, strict=True)))
        self.step += 1
        if not math.isfinite(error):
            raise BadInputError(f"training the prior diverged at step {self.step}; lower lr from {self.settings.lr}")
        return math.sqrt(error)

    def _batch(self) -> Tensor:
        per_epoch = math.ceil(len(self.images) / self.settings.batch_size)
        epoch, place = divmod(self.step, per_epoch)
        rng = random.generator(self.settings.seed, "prior", "order", epoch)
        order = torch.randperm(len(self.images), generator=rng)
        size = self.settings.batch_size
        return self.images[order[place * size : (place + 1) * size]]

    def _loss(self, weights: Mapping[str, Tensor], images: Tensor) -> tuple[Tensor, float]:
        """σ-VAE (Rybkin et al. 2021): D/2 · log MSE + KL, with the likelihood's variance at its optimum.

        The balance of sharpness and a Gaussian latent needs no weight to be tuned by data set.
        """
        mean, spread = self.decoder.encode(weights, images)
        noise = random.normal_like(mean, random.generator(self.settings.seed, "prior", "noise", self.step))
        made = self.decoder.decode(weights, mean + (spread / 2).exp() * noise)
        error = (made - images).square().mean()
        gap = 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(1).mean()
        return images[0].numel() / 2 * error.clamp_min(1e-8).log() + gap, float(error.detach())

    def _adam(self, gradient: Mapping[str, Tensor]) -> None:
        """Adam with a rate that falls linearly to zero."""
        done = self.step + 1
        rate = self.settings.lr * (1 - self.step / self.total) / (1 - _BETAS[0] ** done)
        for name, value in gradient.items():
            self.first[name].lerp_(value, 1 - _BETAS[0])
            self.second[name].mul_(_BETAS[1]).addcmul_(value, value, value=1 - _BETAS[1])
            spread = (self.second[name] / (1 - _BETAS[1] ** done)).sqrt_().add_(_EPSILON)
            self.weights[name] = (self.weights[name].detach() - rate * self.first[name] / spread).detach()
