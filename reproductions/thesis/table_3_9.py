"""Ren's thesis, Table 3.9: GRNN by resolution and batch size, behind ResNet-18."""

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
    every,
    reaches,
)
from leakscope.reproduction.drawing import Drawing, compare_groups
from leakscope.reproduction.papers import THESIS
from reproductions.thesis.setting import ENDINGS, RECOGNISABLE, UNTRAINED, attacked, draw, smoke_scale
from reproductions.thesis.verdicts import falls_short, where_run

NAME = "thesis/table-3-9"
BATCHES = (1, 4, 8, 16, 32)
# ✓ as y and × as n, in the order of BATCHES.
PRINTED = {32: "yyyyy", 64: "yyynn", 128: "ynnnn", 256: "ynnnn"}
MARKS = {"y": "✓", "n": "×"}
# GRNN's ResNet-18 with a fortieth of its weights: sigmoids, weights from U(−0.5, 0.5), statistics of the batch.
SIGMOID = {"activation": "sigmoid", "init": "uniform"}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Batches of one victim are beginnings of its largest one, at every resolution."""
    grid = [(side, size) for side, sizes in scale.options["grid"] for size in sizes]
    batches = draw(NAME, scale, scale.data[0], batch_size=max(size for _, size in grid))
    for victim, batch in enumerate(batches):
        for side, size in grid:
            yield attack_cell(
                {"resolution": side, "batch": size, "victim": victim},
                model=attacked(scale, victim, mode="train", **scale.options["network"]),
                data=scale.data[0],
                size=side,
                indices=[batch[:size]],
                attack=scale.options["attacks"]["GRNN"],
                scenario="C",
                seed=victim,
                pictures=int(victim == 0),
                expected=ENDINGS,
            )


def _figures(results: Results) -> list[Drawing]:
    return [
        compare_groups(
            results.where(resolution=side),
            "ssim",
            group="batch",
            title=f"SSIM by batch size at {side} × {side}",
            label="SSIM",
            name=f"ssim-{side}",
        )
        for side in results.tags("resolution")
    ]


def _succeeds(side: int, size: int):
    return reaches("ssim", RECOGNISABLE, unit="SSIM", ended="any", resolution=side, batch=size)


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Table 3.9",
    title="success of GRNN by resolution and batch size, behind ResNet-18",
    scenario="C",
    claims=(
        Claim(
            "64-pixels-in-batches",
            "At 64 × 64 GRNN's pictures are recognisable alone and in a batch of 4.",
            "✓ at 1, 4 and 8, × at 16 and 32",
            every(_succeeds(64, 1), _succeeds(64, 4)),
        ),
        Claim(
            "larger-pictures-alone",
            "At 128 × 128 and 256 × 256 GRNN's pictures are recognisable alone and not in batches.",
            "✓ at 1, × from 4 to 32",
            where_run(
                every(
                    *(_succeeds(side, 1) for side in (128, 256)),
                    *(
                        falls_short("ssim", RECOGNISABLE, unit="SSIM", resolution=side, batch=size)
                        for side in (128, 256)
                        for size in BATCHES[1:]
                    ),
                ),
                tag="resolution",
                values=(128, 256),
            ),
        ),
        Claim(
            "smaller-is-easier",
            "In a batch of 4 GRNN's pictures are better at 32 × 32 than at 64 × 64.",
            "✓ up to 32 at 32 × 32, up to 8 at 64 × 64",
            above("ssim", {"resolution": 32, "batch": 4}, {"resolution": 64, "batch": 4}, unit="SSIM", ended="any"),
        ),
    ),
    numbers=tuple(
        PaperNumber(
            "Table 3.9",
            f"{side}*{side}",
            f"batch {size}: {MARKS[mark]}; ours: SSIM",
            None,
            "",
            metric="ssim",
            tags={"resolution": side, "batch": size},
        )
        for side, marks in PRINTED.items()
        for size, mark in zip(BATCHES, marks, strict=True)
    ),
    scales=(
        smoke_scale(grid=[[32, [1]], [16, [1]]], network={}, columns=["CIFAR-100"]),
        RecipeScale(
            "cpu",
            10,
            victims=3,
            among=800,
            steps=300,
            models=("resnet20",),
            data=("cifar100",),
            options={
                "grid": [[32, [1, 4]], [64, [1, 4]]],
                "network": SIGMOID,
                "attacks": {"GRNN": "grnn:steps=300,tv=1e-6"},
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
                "grid": [[side, list(BATCHES)] for side in PRINTED],
                "network": {},
                "attacks": {"GRNN": "grnn:steps=1000,schedule=paper,tv=1e-6"},
            },
        ),
    ),
    cells=cells,
    figures=_figures,
    stand_ins={"ResNet-18": "ResNet-20 with sigmoids and the same start: a fortieth of the weights"},
    notes=(
        f"A success is a mean SSIM above {RECOGNISABLE}; the thesis judges by eye.",
        UNTRAINED,
        "Pictures of 32 × 32 are brought to the larger resolutions, as in the thesis: they stay smooth.",
        "At scale cpu 300 iterations with leakscope's schedule and the published weight of the variation, 1e-6.",
    ),
)
