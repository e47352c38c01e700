"""Penalties on how large values are: the norm of pixels, their distance from a valid range, the moments of a latent."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from leakscope.matching.candidates.latent import LATENT
from leakscope.matching.penalties.penalty import Penalty, Trial
from leakscope.types import limits_of


@dataclass(frozen=True)
class InputNorm(Penalty):
    """Mean of squared coordinates: GradInversion's ℓ2 prior on the image."""

    weight: float
    relative: bool = False

    def value(self, trial: Trial) -> Tensor:
        """Return the mean square per group; a mean, so image size does not matter."""
        return trial.coordinates.square().flatten(1).mean(1)


@dataclass(frozen=True)
class Clipping(Penalty):
    """Geng et al.: mean squared distance of the image from itself clipped to the valid range."""

    weight: float
    relative: bool = False

    def value(self, trial: Trial) -> Tensor:
        """Return mean (x − clip(x))² per group."""
        low, high = _bounds(trial)
        images = trial.images
        clipped = images.clamp(low, high)  # type: ignore[arg-type]  # both numbers, or both tensors
        return (images - clipped.detach()).square().flatten(1).mean(1)


@dataclass(frozen=True)
class Scaling(Penalty):
    """Geng et al.: mean squared distance of the image from itself stretched to the whole valid range.

    The extremes are taken as constants: the term moves all pixels, not just the two that define it.
    """

    weight: float
    relative: bool = False

    def value(self, trial: Trial) -> Tensor:
        """Return mean (x − stretched(x))² per group."""
        low, high = _bounds(trial)
        images = trial.images
        flat = images.detach().flatten(2)
        shape = (*flat.shape[:2], *[1] * (images.ndim - 2))
        least, most = flat.amin(2).reshape(shape), flat.amax(2).reshape(shape)
        stretched = low + (high - low) * (images.detach() - least) / (most - least).clamp_min(1e-6)
        return (images - stretched).square().flatten(1).mean(1)


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


def _bounds(trial: Trial) -> tuple[float, float] | tuple[Tensor, Tensor]:
    return limits_of(trial.seen[0].bounds if trial.seen else None, trial.images)
