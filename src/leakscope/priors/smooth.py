"""The prior nobody has to train: images are sums of slow cosines, the slower the stronger."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.errors import UnsuitableError
from leakscope.priors.prior import Prior
from leakscope.types import Tensors

# Spread of the logits: ±1.5 around grey fills most of [0, 1].
_CONTRAST = 1.5


@dataclass(frozen=True)
class Cosines:
    """x = sigmoid(mean + R (s ⊙ z) Cᵀ) per channel, with R and C the first `cutoff` cosines of a DCT.

    s falls as one over the frequency, the spectrum of natural images, so that standard normal
    latents give plausible ones. Any image size; the latent is [C, cutoff, cutoff] or less.
    """

    cutoff: int = 8
    image_shape: tuple[int, int, int] | None = None

    @property
    def latent_shape(self) -> tuple[int, ...]:
        """Channels and the frequencies down and across."""
        if self.image_shape is None:
            return (1, self.cutoff, self.cutoff)
        channels, height, width = self.image_shape
        return (channels, min(self.cutoff, height), min(self.cutoff, width))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Nothing until the size is known."""
        if self.image_shape is None:
            return {}
        (_, height, width), (_, down, across) = self.image_shape, self.latent_shape
        return {"rows": (height, down), "columns": (width, across), "scale": (down, across), "mean": self.image_shape}

    def decode(self, weights: Tensors, latents: Tensor) -> Tensor:
        """Sum the cosines; a sigmoid keeps the pixels in range."""
        spectrum = weights["scale"] * latents
        return (weights["mean"] + weights["rows"] @ spectrum @ weights["columns"].mT).sigmoid()

    def fit(self, weights: Tensors, image_shape: tuple[int, ...]) -> tuple[Cosines, Tensors]:
        """Cosines of the right length."""
        if self.image_shape == image_shape:
            return self, weights
        if len(image_shape) != 3:
            raise UnsuitableError(
                f"a prior on images needs inputs [C, H, W], got {list(image_shape)}; "
                "use an attack without a prior, such as dlg-adam"
            )
        shape = (image_shape[0], image_shape[1], image_shape[2])
        made = Cosines(self.cutoff, shape)
        down, across = made.latent_shape[1:]
        return made, {
            "rows": _basis(shape[1], down),
            "columns": _basis(shape[2], across),
            "scale": _spectrum(down, across),
            "mean": torch.zeros(shape, dtype=torch.float64),
        }


def smooth_prior(*, cutoff: int = 8) -> Prior:
    """The first `cutoff` × `cutoff` cosines per channel: a baseline that knows of smoothness alone."""
    if cutoff < 1:
        raise UnsuitableError(f"smooth_prior needs cutoff ≥ 1, got {cutoff}")
    return Prior(Cosines(cutoff), {}, "slow cosines; nothing was trained")


def _basis(length: int, count: int) -> Tensor:
    """cos(π/N · (i + ½) · k), columns of mean square 1."""
    places = torch.arange(length, dtype=torch.float64) + 0.5
    waves = torch.cos(math.pi / length * places[:, None] * torch.arange(count, dtype=torch.float64)[None, :])
    waves[:, 1:] *= math.sqrt(2)
    return waves


def _spectrum(down: int, across: int) -> Tensor:
    """Amplitude 1/(1 + frequency), total variance _CONTRAST²."""
    frequency = torch.hypot(
        torch.arange(down, dtype=torch.float64)[:, None], torch.arange(across, dtype=torch.float64)[None, :]
    )
    amplitude = 1 / (1 + frequency)
    return _CONTRAST * amplitude / amplitude.square().sum().sqrt()
