"""Ren's thesis, Table 3.12: GRNN by its loss function, on digits."""

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
)
from leakscope.reproduction.drawing import Drawing, compare_groups
from leakscope.reproduction.papers import THESIS
from reproductions.thesis.losses import DISTANCES
from reproductions.thesis.setting import (
    CPU_TEST,
    RECOGNISABLE,
    SIDE,
    STAND_INS,
    UNTRAINED,
    attacked,
    columns_of,
    draw,
    reads,
    smoke_scale,
)
from reproductions.thesis.verdicts import falls_short

NAME = "thesis/table-3-12"
BEST = "MSE & WD & TVLoss"
PRINTED = ("MSE", "WD", "CD", "MSE & WD", "MSE & CD", "MSE & CD & TVLoss", BEST)


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Every loss on the same victims."""
    side = scale.options["side"]
    for column, data in columns_of(scale):
        for victim, batch in enumerate(draw(NAME, scale, data)):
            for loss in scale.options.get("losses", DISTANCES):
                yield call_cell(
                    {"loss": loss, "data": column, "victim": victim},
                    "reproductions.thesis.losses:rebuild_with_loss",
                    reads=[reads(data, [batch], size=side)],
                    loss=loss,
                    model=attacked(scale, victim),
                    data=data,
                    indices=[batch],
                    steps=scale.steps,
                    width=scale.options["width"],
                    size=side,
                    seed=victim,
                )


def _figures(results: Results) -> list[Drawing]:
    return [compare_groups(results, "ssim", group="loss", title="SSIM by loss function", label="SSIM", name="ssim")]


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Table 3.12",
    title="pictures of digits by GRNN's loss function",
    scenario="C",
    claims=(
        Claim(
            "all-three-are-best",
            "MSE with WD and TVLoss rebuilds better than every other loss of the table.",
            "the best of seven, by eye",
            every(*(above("ssim", {"loss": BEST}, {"loss": loss}, unit="SSIM") for loss in PRINTED[:-1])),
        ),
        Claim(
            "cosine-alone-fails",
            "The cosine distance alone rebuilds no recognisable digit.",
            "no legible digit, by eye",
            falls_short("ssim", RECOGNISABLE, unit="SSIM", loss="CD"),
        ),
        Claim(
            "released-above-sorted",
            "With the release's WD, which is a norm, GRNN rebuilds better than with a distance that sorts.",
            "not tested: text and release disagree on what WD is",
            above("ssim", {"loss": BEST}, {"loss": f"{BEST}, sorted"}, unit="SSIM"),
        ),
    ),
    numbers=tuple(
        PaperNumber("Table 3.12", loss, "SSIM", None, "", metric="ssim", tags={"loss": loss}) for loss in DISTANCES
    ),
    scales=(
        smoke_scale(losses=["CD", "MSE & CD & TVLoss"], width=4),
        RecipeScale(
            "cpu",
            8,
            victims=4,
            among=360,
            steps=500,
            models=("lenet-grnn",),
            data=("digits",),
            options={"columns": ["MNIST"], "among": CPU_TEST, "side": SIDE, "width": 32},
        ),
        RecipeScale(
            "paper",
            100,
            victims=20,
            among=10_000,
            steps=1_000,
            models=("lenet-grnn",),
            data=("mnist",),
            options={"columns": ["MNIST"], "side": SIDE, "width": 32},
        ),
    ),
    cells=cells,
    figures=_figures,
    stand_ins={"MNIST": STAND_INS["MNIST"]},
    notes=(
        "All rows with the published rate, width and squared variation; only the distance of gradients differs.",
        "WD is the norm of the difference, as in the release; rows that sort are what the text's name means.",
        UNTRAINED,
        "The thesis prints pictures and no numbers here.",
    ),
)
