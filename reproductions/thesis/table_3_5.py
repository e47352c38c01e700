"""Ren's thesis, Table 3.5: how pictures of DLG and of GRNN come about over the iterations."""

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
    call_cell,
    every,
    reaches,
)
from leakscope.reproduction.drawing import Drawing
from leakscope.reproduction.papers import THESIS
from leakscope.reproduction.recipe import Tag
from reproductions.thesis.curves import draw_runs
from reproductions.thesis.setting import (
    CPU_TEST,
    ENDINGS,
    RECOGNISABLE,
    SCHEDULES,
    SIDE,
    STAND_INS,
    UNTRAINED,
    attacked,
    columns_of,
    draw,
    paper_scale,
    reads,
    sets_of,
    smoke_scale,
)

NAME = "thesis/table-3-5"
COLUMNS = ("CIFAR-100", "LFW")
METHODS = ("DLG", "GRNN")


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Both methods on the same victims, watched."""
    side = scale.options["side"]
    for column, data in columns_of(scale):
        for victim, batch in enumerate(draw(NAME, scale, data)):
            for method in METHODS:
                yield call_cell(
                    {"method": method, "data": column, "victim": victim},
                    "reproductions.thesis.traces:watch_attack",
                    reads=[reads(data, [batch], size=side)],
                    model=attacked(scale, victim),
                    data=data,
                    indices=[batch],
                    attack=scale.options["attacks"][method],
                    size=side,
                    seed=victim,
                    pictures=victim == 0,
                    expected=ENDINGS,
                )


def _figures(results: Results) -> list[Drawing]:
    groups: dict[str, dict[str, Tag]] = {str(method): {"method": method} for method in results.tags("method")}
    shown = {"mse": "Error over the iterations", "coarse": "Error of means over 4 × 4 blocks"}
    return [
        draw_runs(results, groups, metric, title=title, label="mean squared error", name=f"error-{metric}")
        for metric, title in shown.items()
    ]


def _both(column: str):
    return [reaches("ssim", RECOGNISABLE, unit="SSIM", ended="any", method=method, data=column) for method in METHODS]


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Table 3.5",
    title="pictures of DLG and GRNN over their iterations, one picture a gradient",
    scenario="C",
    claims=(
        Claim(
            "coarse-first",
            "After a tenth of the iterations GRNN's picture is nearer from afar than DLG's.",
            "DLG goes pixel by pixel, GRNN from coarse to fine, by eye",
            above("coarse@10", {"method": "DLG"}, {"method": "GRNN"}, unit="squared error of 4 × 4 blocks"),
        ),
        Claim(
            "dlg-ends-finer",
            "At the end DLG's picture is nearer to the truth than GRNN's, where both are recognisable.",
            "GRNN's error is slightly higher at batch 1, hardly discernible",
            above("psnr", {"method": "DLG"}, {"method": "GRNN"}),
        ),
        Claim(
            "both-end-recognisable",
            "At the end both methods show the picture at batch 1.",
            "almost the same as the true pictures, by eye",
            every(*_both("CIFAR-100"), *_both("LFW")),
        ),
    ),
    numbers=tuple(
        PaperNumber("Table 3.5", method, f"{column}, SSIM", None, "", metric="ssim", tags=tags)
        for method in METHODS
        for column in COLUMNS
        for tags in [{"method": method, "data": column}]
    ),
    scales=(
        smoke_scale(columns=["CIFAR-100"]),
        RecipeScale(
            "cpu",
            6,
            victims=4,
            among=800,
            steps=1_000,
            models=("lenet-grnn",),
            data=sets_of(COLUMNS),
            options={
                "columns": list(COLUMNS),
                "among": CPU_TEST,
                "side": SIDE,
                "attacks": {"GRNN": "grnn:steps=1000", "DLG": "dlg:steps=100,retries=1"},
            },
        ),
        paper_scale(
            90,
            COLUMNS,
            victims=20,
            among=2_000,
        ),
    ),
    cells=cells,
    figures=_figures,
    stand_ins={"LFW": STAND_INS["LFW"]},
    notes=(
        SCHEDULES,
        UNTRAINED,
        "An iteration of DLG is up to 20 evaluations of L-BFGS; the axis is the share of each method's own run.",
        "The thesis prints pictures and no numbers here. Pictures run from the last iterate back.",
    ),
)
