"""Gaussian smoothing of image gradients, as two small matrix products."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


def blurred(gradient: Tensor, sigma: float) -> Tensor:
    """Blur the last two dimensions with standard deviation `sigma` pixels, mass kept at borders."""
    rows = _kernel(gradient.shape[-2], sigma).to(gradient)
    columns = _kernel(gradient.shape[-1], sigma).to(gradient)
    return rows @ gradient @ columns.T


@lru_cache(maxsize=32)
def _kernel(side: int, sigma: float) -> Tensor:
    places = torch.arange(side, dtype=torch.float64)
    weights = torch.exp(-0.5 * ((places[:, None] - places[None, :]) / sigma) ** 2)
    return weights / weights.sum(1, keepdim=True)
