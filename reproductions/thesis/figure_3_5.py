"""Ren's thesis, Figure 3.5: share of pictures above a threshold of MSE, PSNR and SSIM, by batch size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from leakscope.reproduction import (
    Claim,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    above,
    every,
)
from leakscope.reproduction.drawing import Drawing, draw_lines
from leakscope.reproduction.papers import THESIS
from reproductions.thesis import table_3_6, table_3_8
from reproductions.thesis.setting import RECOGNISABLE
from reproductions.thesis.table_3_6 import MEASURED
from reproductions.thesis.verdicts import share_exceeds

POINTS = 21
# Range of the thresholds, and whether a picture succeeds below its threshold; MSE is of pixels in [0, 1].
METRICS = {"mse": (0.0, 0.25, True), "psnr": (0.0, 30.0, False), "ssim": (0.0, 1.0, False)}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Those of Table 3.8."""
    return table_3_8.cells(scale)


def success_curve(values: Sequence[float], *, low: float, high: float, below: bool) -> list[tuple[float, float]]:
    """Share of pictures that succeed at every threshold from `low` to `high`: at most it, or at least it."""
    found = []
    for place in range(POINTS):
        bar = low + (high - low) * place / (POINTS - 1)
        passed = sum(value <= bar if below else value >= bar for value in values)
        found.append((bar, passed / len(values)))
    return found


def _figures(results: Results) -> list[Drawing]:
    found = []
    for metric, (low, high, below) in METRICS.items():
        lines = {}
        for method in results.tags("method"):
            for batch in results.tags("batch"):
                values = [x for one in results.where(method=method, batch=batch) for x in one.examples(metric)]
                if values:
                    lines[f"{method}, batch {batch}"] = success_curve(values, low=low, high=high, below=below)
        title, bar, name = f"Success by {metric.upper()}", f"threshold of {metric.upper()}", f"success-{metric}"
        found.append(draw_lines(lines, title=title, x_label=bar, y_label="share of pictures", name=name))
    return found


RECIPE = PaperRecipe(
    name="thesis/figure-3-5",
    paper=THESIS,
    item="Figure 3.5",
    title="share of successful pictures over the threshold, by batch size",
    scenario="C",
    claims=(
        Claim(
            "more-grnn-pictures-above-0.2",
            "At every batch size above 1 more of GRNN's pictures than of DLG's have an SSIM above 0.2.",
            "at 0.2 DLG's rates fall to 0 apart from batch 1, GRNN's worst is above 0.77",
            every(
                *(
                    share_exceeds(
                        "ssim", RECOGNISABLE, {"method": "GRNN", "batch": size}, {"method": "DLG", "batch": size}
                    )
                    for size in MEASURED[1:]
                )
            ),
        ),
        Claim(
            "lower-error-at-the-same-rate",
            "At every batch size above 1 GRNN's squared error is below DLG's.",
            "at a rate of 0.6 the threshold is about 0.05 for GRNN and 0.17 for DLG",
            every(
                *(
                    above(
                        "mse",
                        {"method": "DLG", "batch": size},
                        {"method": "GRNN", "batch": size},
                        unit="squared error",
                        ended="any",
                    )
                    for size in MEASURED[1:]
                )
            ),
        ),
    ),
    numbers=(
        PaperNumber("text, MSE at a rate of 0.6", "GRNN", "all", 0.05, "", metric="mse", tags={"method": "GRNN"}),
        PaperNumber("text, MSE at a rate of 0.6", "DLG", "all", 0.17, "", metric="mse", tags={"method": "DLG"}),
        PaperNumber(
            "text, rate at SSIM 0.2",
            "DLG",
            "batch 1",
            0.7,
            "share",
            why_not="a share of pictures, drawn in the figure; the cells bring values back, not shares",
        ),
        PaperNumber(
            "text, rate at SSIM 0.2",
            "GRNN",
            "worst batch size",
            0.77,
            "share",
            why_not="a share of pictures, drawn in the figure; the cells bring values back, not shares",
        ),
    ),
    scales=tuple(replace(one, minutes=min(one.minutes, 0.1)) for one in table_3_6.RECIPE.scales),
    cells=cells,
    figures=_figures,
    shares=table_3_6.NAME,
    notes=("The cells are Table 3.6's, which run once.", "Beside the printed MSE stands our mean, no quantile."),
)
