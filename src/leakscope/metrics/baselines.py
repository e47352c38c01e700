"""What a guesser reaches who never saw the update: leakage starts above this line."""

from __future__ import annotations

import torch
from torch import Tensor

from leakscope.metrics.pairs import compute_dtype, to_unit_range
from leakscope.metrics.pixel import psnr
from leakscope.rng import generator, uniform
from leakscope.types import Batch


@torch.no_grad()
def guess_baseline(truth: Batch, seed: int = 0) -> Tensor:
    """PSNR [n] of the better of two blind guesses: plain mid-grey, and uniform noise.

    Mid-grey alone reaches at least 6.02 dB on any picture and often 12 dB, so a number below
    this line is no reconstruction, whatever its sign.

    Args:
        truth: The private examples.
        seed: Seed of the noise picture.
    """
    examples = to_unit_range(truth.inputs.to(compute_dtype(truth.inputs)), truth)
    grey = torch.full_like(examples, 0.5)
    noise = uniform(tuple(examples.shape), generator(seed, "guess"), like=examples)
    return torch.maximum(psnr(grey, examples), psnr(noise, examples))
