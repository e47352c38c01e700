"""Pixel by pixel: mean squared error, mean absolute error, the one canonical PSNR, and what a blind guess reaches."""

from __future__ import annotations

import torch
from torch import Tensor

from leakscope.metrics.metric import Metric
from leakscope.metrics.pairs import compute_dtype, prepare_pair, to_unit_range
from leakscope.rng import generator, uniform
from leakscope.types import Batch

MSE_FLOOR = 1e-15
"""Below this error two pictures are one: PSNR stops at 150 dB, so averages and JSON stay finite."""


def mse(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """Mean squared error per example of values clamped to [0, 1].

    Args:
        reconstruction: [n, …].
        truth: [n, …], the example behind each reconstruction.

    Returns:
        [n], between 0 and 1.
    """
    left, right = prepare_pair(reconstruction, truth)
    return (left - right).square().flatten(1).mean(1)


def mae(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """Mean absolute error per example of values clamped to [0, 1]."""
    left, right = prepare_pair(reconstruction, truth)
    return (left - right).abs().flatten(1).mean(1)


def psnr(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """Peak signal-to-noise ratio per example, in dB: 10 · log10(1 / MSE).

    Clamped to [0, 1], peak 1. The error is floored at 1e-15, so identical pictures give
    150 dB. Published variants differ: see `leakscope.metrics.legacy`.

    Example:
        >>> import torch
        >>> psnr(torch.full((1, 1, 2, 2), 0.6), torch.full((1, 1, 2, 2), 0.5)).round(decimals=2).tolist()
        [20.0]
    """
    return decibels(mse(reconstruction, truth))


def decibels(error: Tensor, *, peak: float | Tensor = 1.0) -> Tensor:
    """Return 10 · log10(peak² / error), with the error floored."""
    floored = error.clamp_min(MSE_FLOOR)
    # + 0.0 turns the −0.0 of an error of exactly 1 into 0.0.
    return -10 * (floored / peak**2).log10() + 0.0


MSE = Metric("mse", mse, higher_is_better=False, unit="", reference="mean squared error, values in [0, 1]", nothing=1.0)
MAE = Metric(
    "mae", mae, higher_is_better=False, unit="", reference="mean absolute error, values in [0, 1]", nothing=1.0
)
PSNR = Metric(
    "psnr", psnr, higher_is_better=True, unit="dB", reference="10·log10(1/MSE), clamped to [0, 1], peak 1", nothing=0.0
)


@torch.no_grad()
def guess_baseline(truth: Batch, seed: int = 0) -> Tensor:
    """PSNR [n] of the better of two blind guesses: plain mid-grey, and uniform noise.

    Mid-grey alone reaches at least 6.02 dB on any picture and often 12 dB, so a number below
    this line is not a reconstruction, whatever its sign.

    Args:
        truth: The private examples.
        seed: Seed of the noise picture.
    """
    examples = to_unit_range(truth.inputs.to(compute_dtype(truth.inputs)), truth)
    grey = torch.full_like(examples, 0.5)
    noise = uniform(tuple(examples.shape), generator(seed, "guess"), like=examples)
    return torch.maximum(psnr(grey, examples), psnr(noise, examples))
