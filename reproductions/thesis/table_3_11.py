"""Ren's thesis, Table 3.11: GRNN beside Inverting Gradients on large pictures, behind ResNet-18."""

from __future__ import annotations

from collections.abc import Iterator

from leakscope.reproduction import (
    Claim,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    above,
    attack_cell,
    untestable,
)
from leakscope.reproduction.drawing import Drawing, compare_groups
from leakscope.reproduction.papers import THESIS
from reproductions.thesis.setting import ENDINGS, UNTRAINED, attacked, draw, smoke_scale
from reproductions.thesis.table_3_9 import SIGMOID

NAME = "thesis/table-3-11"
BATCHES = (1, 4, 8)
# Four pictures of each batch size: MSE of 8-bit pixels, PSNR, SSIM; GRNN's, then IG's.
PRINTED = {
    1: {
        "GRNN": ((4107.90, 3656.38, 45.75, 53.21), (11.99, 12.50, 31.52, 30.87), (0.49, 0.90, 0.95, 0.98)),
        "IG": ((2272.82, 4853.13, 94.19, 1729.50), (14.57, 11.27, 28.39, 15.75), (0.31, 0.26, 0.85, 0.55)),
    },
    4: {
        "GRNN": ((1482.89, 5996.54, 1391.17, 1799.29), (16.42, 10.35, 16.70, 15.58), (0.90, 0.61, 0.75, 0.86)),
        "IG": ((2261.19, 4481.52, 716.74, 2147.60), (14.59, 11.62, 19.58, 14.81), (0.39, 0.34, 0.56, 0.40)),
    },
    8: {
        "GRNN": ((4874.68, 1280.33, 1441.29, 3380.90), (11.25, 17.06, 16.54, 12.84), (0.54, 0.59, 0.70, 0.54)),
        "IG": ((4836.14, 3309.53, 2693.98, 3059.81), (11.29, 12.93, 13.83, 13.27), (0.24, 0.28, 0.35, 0.33)),
    },
}
# Metric of ours, what turns it into the printed unit, and the unit.
METRICS = (("mse", 255.0**2, ""), ("psnr", 1.0, "dB"), ("ssim", 1.0, ""))


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Both methods on the same victims."""
    sizes = scale.options["batches"]
    for victim, batch in enumerate(draw(NAME, scale, scale.data[0], batch_size=max(sizes))):
        for size in sizes:
            for method, attack in scale.options["attacks"].items():
                yield attack_cell(
                    {"method": method, "batch": size, "victim": victim},
                    model=attacked(scale, victim, mode="train", **scale.options["network"]),
                    data=scale.data[0],
                    size=scale.options["side"],
                    indices=[batch[:size]],
                    attack=attack,
                    scenario="C",
                    seed=victim,
                    pictures=int(victim < 2),
                    expected=ENDINGS,
                )


def _figures(results: Results) -> list[Drawing]:
    return [compare_groups(results, "ssim", group="method", title="SSIM by method", label="SSIM", name="ssim")]


def _in_batches(results: Results):
    if not {4, 8} & set(results.tags("batch")):
        return untestable("batches of 4 and 8 are run at scale paper alone")
    return above("ssim", {"method": "GRNN", "batch": 8}, {"method": "IG", "batch": 8}, unit="SSIM", ended="any")(
        results
    )


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Table 3.11",
    title="GRNN and Inverting Gradients on large pictures",
    scenario="C",
    claims=(
        Claim(
            "higher-ssim-alone",
            "GRNN's picture has a higher SSIM than that of Inverting Gradients at batch 1.",
            "0.83 against 0.49 in the mean of four pictures",
            above("ssim", {"method": "GRNN", "batch": 1}, {"method": "IG", "batch": 1}, unit="SSIM", ended="any"),
        ),
        Claim(
            "higher-psnr-alone",
            "GRNN's picture has a higher PSNR than that of Inverting Gradients at batch 1.",
            "21.7 against 17.5 dB in the mean of four pictures; three of four",
            above("psnr", {"method": "GRNN", "batch": 1}, {"method": "IG", "batch": 1}, ended="any"),
        ),
        Claim(
            "higher-ssim-in-batches",
            "GRNN's pictures have a higher SSIM than those of Inverting Gradients at batch 8.",
            "0.59 against 0.30 in the mean of four pictures",
            _in_batches,
        ),
    ),
    numbers=tuple(
        PaperNumber(
            "Table 3.11",
            f"{method}, batch {size}, picture {place + 1}",
            metric.upper(),
            value,
            unit,
            metric=metric,
            factor=factor,
            tags={"method": method, "batch": size},
        )
        for size, rows in PRINTED.items()
        for method, values in rows.items()
        for (metric, factor, unit), printed in zip(METRICS, values, strict=True)
        for place, value in enumerate(printed)
    ),
    scales=(
        smoke_scale(
            batches=[1],
            network={},
            attacks={"GRNN": "grnn:steps=2,width=4", "IG": "inverting-gradients:layers=all,steps=2"},
        ),
        RecipeScale(
            "cpu",
            7,
            victims=4,
            among=800,
            steps=300,
            models=("resnet20",),
            data=("cifar100",),
            options={
                "side": 64,
                "batches": [1],
                "network": SIGMOID,
                "attacks": {"GRNN": "grnn:steps=300,tv=1e-6", "IG": "inverting-gradients:layers=all,steps=300"},
            },
        ),
        RecipeScale(
            "paper",
            200_000,
            victims=10,
            among=10_000,
            steps=1_000,
            models=("resnet18-grnn",),
            data=("cifar100",),
            options={
                "side": 256,
                "batches": list(BATCHES),
                "network": {},
                "attacks": {
                    "GRNN": "grnn:steps=1000,schedule=paper,tv=1e-6",
                    "IG": "inverting-gradients:layers=all,steps=4800",
                },
            },
        ),
    ),
    cells=cells,
    figures=_figures,
    stand_ins={
        "ResNet-18": "ResNet-20 with sigmoids and the same start: a fortieth of the weights",
        "256 × 256": "64 × 64",
    },
    notes=(
        "PSNR of this table is the usual one: 4107.90 and 11.99 agree. Every printed picture stands beside our mean.",
        UNTRAINED,
        "Both methods take 300 iterations at scale cpu, fewer than Inverting Gradients usually needs on deep networks; "
        "the thesis does not say how many it ran.",
    ),
)
