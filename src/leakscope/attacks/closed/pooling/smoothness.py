"""What is known of pictures before seeing any: slow waves are strong, colours vary together, detail comes in places.

x = mean + white noise with a power spectrum that falls as 1/f³, more of it in grey than in colour; where the picture
is flat or busy, the noise is scaled down or up. Nothing in it was learned from images. Local scaling follows the
Gaussian scale mixtures of Portilla, Strela, Wainwright, Simoncelli (IEEE TIP 2003).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Generator, Tensor
from torch.nn import functional

from leakscope import rng as random

_POWER = 3.0
# Of a picture in [0, 1]: mean, variance of a pixel, the share of it that is colour, and noise of no smoothness at all.
_MEAN, _VARIANCE, _COLOUR, _ROUGH = 0.45, 0.06, 0.05, 1e-5
# Waves longer than the picture are no stronger than this fraction of a period says.
_LONGEST = 0.5
# The local scale is taken over 5 × 5 pixels, and believed as if 4 more had shown the usual one.
_REACH, _BELIEF = 2, 4.0


@dataclass(frozen=True, eq=False)
class Smoothness:
    """A Gaussian over pictures: `colours` [C, C] and `waves` [HW, HW] span it, `power` [C, HW] is their variance.

    `detail` [C, HW] divides the local variance of the whitened picture; 1 everywhere to begin with.
    """

    shape: tuple[int, int, int]
    centre: Tensor
    colours: Tensor
    waves: Tensor
    power: Tensor
    detail: Tensor
    whiten: Tensor = field(init=False)

    def __post_init__(self) -> None:
        whiten = torch.stack([(self.waves * power.rsqrt()) @ self.waves.T for power in self.power])
        object.__setattr__(self, "whiten", whiten)

    @property
    def mean(self) -> Tensor:
        """The same grey everywhere, [CHW]."""
        return self.centre.expand(self.power.numel())

    def precision(self) -> Tensor:
        """Inverse covariance of the pixels, [CHW, CHW]."""
        blocks = torch.stack(
            [white @ (weight[:, None] * white) for white, weight in zip(self.whiten, self.detail, strict=True)]
        )
        return torch.einsum("ac,bc,cij->aibj", self.colours, self.colours, blocks).reshape(self.power.numel(), -1)

    def adapt(self, mean: Tensor, covariance: Tensor) -> Smoothness:
        """With the local scale that a belief N(mean, covariance) about the picture suggests."""
        channels, pixels = self.power.shape
        opponent = self.colours.T @ (mean - self.mean).reshape(channels, pixels)
        spread = covariance.reshape(channels, pixels, channels, pixels)
        energy = []
        for white, colour, values in zip(self.whiten, self.colours.T, opponent, strict=True):
            own = torch.einsum("a,aibj,b->ij", colour, spread, colour)
            energy.append((white @ values).square() + ((white @ own) * white).sum(1))
        return replace(self, detail=_local(torch.stack(energy), self.shape))

    def sample(self, count: int, rng: Generator, *, bounds: tuple[float, float]) -> Tensor:
        """`count` pictures [count, C, H, W], cut off at `bounds`."""
        # White noise through the symmetric root of the covariance, of which there is only one: many waves share their
        # power, and which basis of them a processor's library returns must not decide what a seed draws.
        white = random.normal((count, *self.power.shape), rng, like=self.power)
        waves = torch.einsum("ac,nap,pk->nck", self.colours, white, self.waves) * self.power.sqrt()
        found = torch.einsum("ac,nck,qk->naq", self.colours, waves, self.waves)
        return (self.centre + found).clamp(*bounds).reshape(count, *self.shape)


def natural(shape: tuple[int, int, int], bounds: tuple[float, float], *, like: Tensor) -> Smoothness:
    """Smoothness of natural pictures of `shape` with values in `bounds`; double precision, on the device of `like`."""
    channels, height, width = shape
    extent = bounds[1] - bounds[0]
    strength, colours = _colours(channels)
    spectrum, waves = torch.linalg.eigh(_correlation(height, width))
    power = (_VARIANCE * strength[:, None] * spectrum.clamp_min(0) + _ROUGH) * extent**2
    centre = torch.tensor(bounds[0] + _MEAN * extent, dtype=torch.float64)
    placed = [value.to(like.device) for value in (centre, colours, waves, power, torch.ones_like(power))]
    return Smoothness(shape, placed[0], placed[1], placed[2], placed[3], placed[4])


def _colours(channels: int) -> tuple[Tensor, Tensor]:
    """Power of grey and of the differences between colours, and the directions of them, [C] and [C, C].

    All differences have the same power, so any basis of them would do; this one is the same on every machine.
    """
    place = torch.arange(channels, dtype=torch.float64)
    directions = torch.cos(torch.pi / channels * (place[:, None] + 0.5) * place)
    share = _COLOUR if channels > 1 else 0.0
    power = torch.full_like(place, channels * share / max(1, channels - 1))
    power[0] = channels * (1 - share)
    return power, directions / directions.norm(dim=0)


def _correlation(height: int, width: int) -> Tensor:
    """Correlation of all pairs of pixels under a 1/f³ spectrum, from a torus twice as large."""
    side = 2 * max(height, width)
    waves = torch.fft.fftfreq(side, 1 / side, dtype=torch.float64)
    squared = waves[:, None].square() + waves[None, :].square()
    lagged = torch.fft.ifft2((squared + _LONGEST**2) ** (-_POWER / 2)).real
    rows, columns = torch.arange(height), torch.arange(width)
    down, across = (rows[:, None] - rows) % side, (columns[:, None] - columns) % side
    pairs = lagged[down[:, None, :, None], across[None, :, None, :]] / lagged[0, 0]
    return pairs.reshape(height * width, height * width)


def _local(energy: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """(ν + n)/(ν + Σ energy) over the n pixels around each."""
    window = 2 * _REACH + 1
    images = functional.pad(energy.reshape(1, *shape), (_REACH,) * 4)
    counts = functional.pad(torch.ones_like(energy).reshape(1, *shape), (_REACH,) * 4)
    total, seen = (functional.avg_pool2d(value, window, 1, divisor_override=1)[0] for value in (images, counts))
    return ((_BELIEF + seen) / (_BELIEF + total)).reshape(energy.shape)
