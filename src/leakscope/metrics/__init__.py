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
from leakscope.metrics.summarise import Spread, exact_interval, success_curve, summarise
from leakscope.metrics.table import COLUMNS_RECOVERED, columns_recovered
from leakscope.metrics.tokens import guess_tokens, score_tokens

__all__ = [
    "COLUMNS_RECOVERED",
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
    "columns_recovered",
    "exact_interval",
    "get_metric",
    "guess_baseline",
    "guess_tokens",
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
    "score_tokens",
    "score_trained",
    "ssim",
    "success_curve",
    "summarise",
]
