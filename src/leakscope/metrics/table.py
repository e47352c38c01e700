"""The metrics by name; a new one is a file and a line here."""

from __future__ import annotations

from leakscope.errors import UsageError, suggest
from leakscope.metrics.lpips import LPIPS
from leakscope.metrics.metric import Metric
from leakscope.metrics.pixel import MAE, MSE, PSNR
from leakscope.metrics.structure import SSIM

METRICS: tuple[Metric, ...] = (
    PSNR,
    SSIM,
    MSE,
    MAE,
    LPIPS,
)


def get_metric(metric: str | Metric) -> Metric:
    """A metric by its name; one that is a value already is returned as it is."""
    if isinstance(metric, Metric):
        return metric
    table = {one.name: one for one in METRICS}
    if metric not in table:
        raise UsageError(f"unknown metric {metric!r}.{suggest(metric, table)}")
    return table[metric]
