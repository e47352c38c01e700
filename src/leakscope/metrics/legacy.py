"""The PSNR of other papers' code, each under its own name. For reproductions only.

No two published code bases compute PSNR alike, so a printed number has to be recomputed or
converted before it is set beside another. With P the canonical PSNR of `leakscope.metrics.psnr`
and all pixels inside [0, 1]:

| function | used by | relation to P |
|---|---|---|
| `psnr_unclamped` | ATS and its replications | P |
| `psnr_normalised` | Inverting Gradients, Soteria | P where all channels have the same std |
| `psnr_root_mse_8bit` | GRNN, FedKL | (P + 48.13) / 2, on 8-bit images |
| `psnr_target_peak` | MKOR | P + 20·log10(brightest true pixel) |
| `psnr_signed_unit` | GGL | P − 6.02 |

All take images in [0, 1]; the error is floored as in the canonical metric.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from leakscope.errors import BadInputError
from leakscope.metrics.pairs import prepare_pair, require_images
from leakscope.metrics.pixel import decibels

PEAK_8BIT_DB = 20 * math.log10(255)


def psnr_unclamped(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """PSNR of ATS (Gao et al., CVPR 2021): peak 1, pixels left outside [0, 1] where they are."""
    left, right = prepare_pair(reconstruction, truth, clamp=False)
    return decibels(_mse(left, right))


def psnr_normalised(reconstruction: Tensor, truth: Tensor, *, std: Sequence[float]) -> Tensor:
    """PSNR of Inverting Gradients (Geiping et al., NeurIPS 2020) and Soteria.

    Both pictures are normalised by the data set's channel `std`; one error over all channels is
    set against a peak of 1/std per channel, and the decibels are averaged over the channels:
    mean_c 10·log10(1 / (std_c² · MSE_normalised)). The data set's mean cancels.
    """
    require_images(truth, metric="psnr_normalised")
    left, right = prepare_pair(reconstruction, truth, clamp=False)
    if len(std) != truth.shape[1] or min(std) <= 0:
        raise BadInputError(f"psnr_normalised needs one positive std per channel ({truth.shape[1]}), got {list(std)}")
    scale = torch.tensor(std, device=left.device, dtype=left.dtype)
    error = _mse(left / scale.view(1, -1, 1, 1), right / scale.view(1, -1, 1, 1))
    return decibels(error.unsqueeze(1), peak=1 / scale).mean(1)


def psnr_root_mse_8bit(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """PSNR of the GRNN and FedKL evaluation: 10·log10(255² / RMSE) on 8-bit pictures.

    The root is in the place of the error, so failures look like 28 dB. Convert printed numbers
    with `from_root_mse_8bit`.
    """
    left, right = prepare_pair(reconstruction, truth)
    root = _mse((left * 255).round(), (right * 255).round()).sqrt()
    return decibels(root, peak=255.0)


def from_root_mse_8bit(reported: float) -> float:
    """Return the PSNR behind a number printed by GRNN or FedKL: 2 · reported − 20·log10(255).

    Exact for one picture; for a printed mean, the mean of the true values.

    Example:
        >>> round(from_root_mse_8bit(28.487), 2)
        8.84
    """
    return 2 * reported - PEAK_8BIT_DB


def psnr_target_peak(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """PSNR of MKOR (Wang, Velipasalar, Gursoy, WACV 2024): the peak is the brightest pixel of each true image.

    An all-black truth has no peak and gives −inf.
    """
    left, right = prepare_pair(reconstruction, truth)
    return decibels(_mse(left, right), peak=right.flatten(1).amax(1))


def psnr_signed_unit(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """PSNR of GGL (Li et al., CVPR 2022): pictures in [−1, 1], yet peak 1: 6.02 dB too low."""
    left, right = prepare_pair(reconstruction, truth)
    return decibels(_mse(2 * left - 1, 2 * right - 1))


def _mse(left: Tensor, right: Tensor) -> Tensor:
    return (left - right).square().flatten(1).mean(1)
