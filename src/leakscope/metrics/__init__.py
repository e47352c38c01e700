"""How close a reconstruction came: pure functions, one value per example.

`score` pairs reconstructions with private examples first and is what audits use; the single
metrics take pairs. `METRICS` lists them with their direction and unit.
"""

from __future__ import annotations

from leakscope.metrics import legacy
from leakscope.metrics.assign import assign, mse_matrix
from leakscope.metrics.baselines import guess_baseline
from leakscope.metrics.identification import Identification, identify
from leakscope.metrics.labels import label_accuracy, label_correct
from leakscope.metrics.lpips import LPIPS, lpips
from leakscope.metrics.metric import Metric
from leakscope.metrics.pixel import MAE, MSE, PSNR, mae, mse, psnr
from leakscope.metrics.score import score
from leakscope.metrics.structure import SSIM, ssim
from leakscope.metrics.summarise import Summary, success_curve, summarise

METRICS: tuple[Metric, ...] = (PSNR, SSIM, MSE, MAE, LPIPS)

__all__ = [
    "LPIPS",
    "MAE",
    "METRICS",
    "MSE",
    "PSNR",
    "SSIM",
    "Identification",
    "Metric",
    "Summary",
    "assign",
    "guess_baseline",
    "identify",
    "label_accuracy",
    "label_correct",
    "legacy",
    "lpips",
    "mae",
    "mse",
    "mse_matrix",
    "psnr",
    "score",
    "ssim",
    "success_curve",
    "summarise",
]
