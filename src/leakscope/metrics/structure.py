"""Structural similarity: do two pictures share local contrast and pattern, not just pixels?"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from leakscope.metrics.metric import Metric
from leakscope.metrics.pairs import prepare_pair, require_images

WINDOW, SIGMA = 11, 1.5
C1, C2 = 0.01**2, 0.03**2


def ssim(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """Mean structural similarity per image, Gaussian window 11 of σ 1.5, data range 1.

    SSIM = (2 μₐ μ_b + c₁)(2 σₐ_b + c₂) / ((μₐ² + μ_b² + c₁)(σₐ² + σ_b² + c₂)), averaged over
    the channels and over the positions where the window fits wholly inside the image. Images
    with a side below 11 use the largest odd window that fits, with the same σ; one pixel wide,
    only the luminance term is left.

    Args:
        reconstruction: [n, C, H, W].
        truth: [n, C, H, W].

    Returns:
        [n], between −1 and 1.

    References:
        Wang, Bovik, Sheikh and Simoncelli, "Image quality assessment: from error visibility to
        structural similarity", IEEE TIP 2004.
    """
    require_images(truth, metric="ssim")
    left, right = prepare_pair(reconstruction, truth)
    window = _gaussian(min(WINDOW, *truth.shape[-2:]), like=left)
    mean_l, mean_r = _smooth(left, window), _smooth(right, window)
    var_l = _smooth(left * left, window) - mean_l**2
    var_r = _smooth(right * right, window) - mean_r**2
    covariance = _smooth(left * right, window) - mean_l * mean_r
    luminance = (2 * mean_l * mean_r + C1) / (mean_l**2 + mean_r**2 + C1)
    pattern = (2 * covariance + C2) / (var_l + var_r + C2)
    return (luminance * pattern).flatten(1).mean(1)


def _gaussian(limit: int, *, like: Tensor) -> Tensor:
    """Return Gaussian weights of the largest odd length ≤ `limit`; they sum to 1."""
    radius = (limit - 1) // 2
    offsets = torch.arange(-radius, radius + 1, device=like.device, dtype=like.dtype)
    weights = (-0.5 * (offsets / SIGMA) ** 2).exp()
    return weights / weights.sum()


def _smooth(images: Tensor, window: Tensor) -> Tensor:
    """Filter each channel along both axes, keeping only positions that need no padding."""
    planes = images.flatten(0, 1).unsqueeze(1)
    planes = functional.conv2d(planes, window.view(1, 1, -1, 1))
    planes = functional.conv2d(planes, window.view(1, 1, 1, -1))
    return planes.view(*images.shape[:2], *planes.shape[-2:])


SSIM = Metric(
    "ssim", ssim, higher_is_better=True, unit="", reference="Wang et al., IEEE TIP 2004", nothing=0.0, images_only=True
)
