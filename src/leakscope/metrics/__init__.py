"""How close a reconstruction came: pure functions, one value per example.

`score` pairs reconstructions with private examples first and is what audits use; the single
metrics take pairs. `METRICS` lists them with their direction and unit.
"""

from __future__ import annotations

from leakscope.metrics import legacy
from leakscope.metrics.assign import assign, mse_matrix
from leakscope.metrics.identification import Identification, identify, label_accuracy, label_correct
from leakscope.metrics.lpips import LPIPS, lpips
from leakscope.metrics.metric import Metric
from leakscope.metrics.pixel import MAE, MSE, PSNR, guess_baseline, mae, mse, psnr
from leakscope.metrics.score import METRICS, get_metric, score, score_trained
from leakscope.metrics.structure import SSIM, ssim
from leakscope.metrics.summarise import Spread, success_curve, summarise

__all__ = [
    "LPIPS",
    "MAE",
    "METRICS",
    "MSE",
    "PSNR",
    "SSIM",
    "Identification",
    "Metric",
    "Spread",
    "assign",
    "get_metric",
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
    "score_trained",
    "ssim",
    "success_curve",
    "summarise",
]
