"""Inputs drawn without any update: what they explain of one, a result must exceed."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from leakscope import rng as random
from leakscope.types import Bounds, Observation, limits_of

# More draws raise the bar by little: in ten cases the largest of 32 explained at most 0.085 more than that of 8 (a
# perceptron), and 0.012 elsewhere.
DRAWS = 8


def unrelated_inputs(seen: Observation, count: int, *, draws: int = DRAWS) -> list[Tensor]:
    """Batches of `count` inputs inside the bounds: smooth, noisy and flat pictures in turn; for a table, noise."""
    like = torch.empty(0, device=seen.device, dtype=seen.dtype)
    kinds = (_smooth, _noise, _smooth, _flat) if is_picture(seen.input_shape) else (_noise,)
    found: list[Tensor] = []
    for draw in range(draws):
        rng = random.generator(0, "unrelated", draw)
        unit = kinds[draw % len(kinds)]((count, *seen.input_shape), rng)
        found.append(_into_bounds(unit.to(like), seen.bounds))
    return found


def is_picture(shape: tuple[int, ...]) -> bool:
    """Whether inputs have channels, height and width."""
    return len(shape) == 3 and min(shape[1:]) > 1


def _smooth(shape: tuple[int, ...], rng: Generator) -> Tensor:
    """Noise with a spectrum of 1/f, the falling spectrum of photographs, stretched to [0, 1]."""
    height, width = shape[-2:]
    across, down = torch.fft.rfftfreq(width, dtype=torch.float64), torch.fft.fftfreq(height, dtype=torch.float64)
    frequency = (across.square() + down[:, None].square()).sqrt().clamp(min=1 / max(height, width))
    spectrum = torch.fft.rfft2(torch.randn(shape, generator=rng, dtype=torch.float64)) / frequency
    image = torch.fft.irfft2(spectrum, s=(height, width))
    low, high = (image.flatten(1).quantile(at, dim=1).reshape(-1, *[1] * (len(shape) - 1)) for at in (0.02, 0.98))
    return ((image - low) / (high - low).clamp(min=1e-12)).clamp(0, 1)


def _noise(shape: tuple[int, ...], rng: Generator) -> Tensor:
    return torch.rand(shape, generator=rng, dtype=torch.float64)


def _flat(shape: tuple[int, ...], rng: Generator) -> Tensor:
    """One colour a picture."""
    colour = torch.rand((*shape[:2], *[1] * (len(shape) - 2)), generator=rng, dtype=torch.float64)
    return colour.expand(shape).clone()


def _into_bounds(unit: Tensor, bounds: Bounds | None) -> Tensor:
    # Without bounds nothing is known of the scale: inputs of unit variance around zero, as standardised tables have.
    low, high = (-(3.0**0.5), 3.0**0.5) if bounds is None else limits_of(bounds, unit)
    return low + (high - low) * unit
