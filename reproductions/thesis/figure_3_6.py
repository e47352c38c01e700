"""Ren's thesis, Figure 3.6: the error of GRNN's pictures over the iterations, by noise on the gradient."""

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
from leakscope.reproduction.drawing import Drawing
from leakscope.reproduction.papers import THESIS
from leakscope.reproduction.recipe import Tag
from reproductions.thesis.curves import draw_runs
from reproductions.thesis.setting import (
    CPU_TEST,
    PUBLISHED,
    SCHEDULES,
    SIDE,
    UNTRAINED,
    attacked,
    columns_of,
    draw,
    paper_scale,
    reads,
    smoke_scale,
)
from reproductions.thesis.table_3_16 import COLUMNS, DEFENCES, SCALES
from reproductions.thesis.verdicts import rises

NAME = "thesis/figure-3-6"


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """GRNN at batch 1, watched; a cell for each noise, of which victims are the units."""
    side = scale.options["side"]
    for column, data in columns_of(scale):
        for victim, batch in enumerate(draw(NAME, scale, data)):
            for noise in scale.options.get("noises", DEFENCES):
                for level in scale.options.get("scales", SCALES):
                    yield call_cell(
                        {"data": column, "noise": noise, "scale": level, "victim": victim},
                        "reproductions.thesis.traces:watch_attack",
                        reads=[reads(data, [batch], size=side)],
                        model=attacked(scale, victim),
                        data=data,
                        indices=[batch],
                        attack=scale.options["attacks"]["GRNN"],
                        defence=DEFENCES[noise].format(level),
                        size=side,
                        seed=victim,
                        pictures=victim == 0,
                    )


def _figures(results: Results) -> list[Drawing]:
    found = []
    for noise in results.tags("noise"):
        groups: dict[str, dict[str, Tag]] = {
            f"{column}, {level}": {"noise": noise, "scale": level, "data": column}
            for column in results.tags("data")
            for level in results.tags("scale")
        }
        title, name = f"Error of the picture under {noise} noise", f"error-{str(noise).lower()}"
        found.append(draw_runs(results, groups, "mse", title=title, label="mean squared error", name=name))
    return found


def _falls(level: str):
    return [rises("psnr@0", "psnr@100", unit="dB", noise=noise, scale=level) for noise in DEFENCES]


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Figure 3.6",
    title="error of GRNN's pictures over the iterations, by noise",
    scenario="C",
    claims=(
        Claim(
            "falls-under-little-noise",
            "Under noise of 1e-3 and less GRNN's pictures come nearer to the truth as the iterations go on.",
            "reasonable pictures from 1e-2 on, curves (c), (d), (g), (h)",
            every(*_falls("1e-3"), *_falls("1e-4")),
        ),
        Claim(
            "ends-nearer-with-less-noise",
            "GRNN's pictures end nearer to the truth under noise of 1e-3 than under noise of 1e-1.",
            "fails at 1e-1, curves (a) and (e)",
            every(
                *(
                    above("psnr@100", {"noise": noise, "scale": "1e-3"}, {"noise": noise, "scale": "1e-1"})
                    for noise in DEFENCES
                )
            ),
        ),
    ),
    numbers=tuple(
        PaperNumber("Figure 3.6", f"{noise}, {level}", "last MSE", None, "", metric="mse@100", tags=tags)
        for noise in DEFENCES
        for level in SCALES
        for tags in [{"noise": noise, "scale": level}]
    ),
    scales=(
        smoke_scale(noises=["Gaussian"], scales=["1e-3"]),
        RecipeScale(
            "cpu",
            3,
            victims=3,
            among=800,
            steps=300,
            models=("lenet-grnn",),
            data=("cifar100",),
            options={
                "columns": ["CIFAR-100"],
                "among": CPU_TEST,
                "side": SIDE,
                "attacks": {"GRNN": "grnn:steps=300"},
            },
        ),
        paper_scale(
            150,
            COLUMNS,
            victims=10,
            among=2_000,
            attacks={"GRNN": PUBLISHED["GRNN"]},
        ),
    ),
    cells=cells,
    figures=_figures,
    notes=(
        "The cells of Table 3.16 keep the end of a run and not its way, so this figure has runs of its own.",
        "Photographs at scale cpu; the thesis shows three data sets.",
        SCHEDULES,
        UNTRAINED,
    ),
)
