"""Ren's thesis, Figure 3.3: distances between true and generated pictures over the iterations, by batch size."""

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
from reproductions.thesis.verdicts import rises, stalls

NAME = "thesis/figure-3-3"
COLUMNS = ("MNIST", "CIFAR-100", "LFW")
BATCHES = (1, 4, 8, 16)
METHODS = ("DLG", "GRNN")
# Decibels that a method must gain on its own start to count as moving.
STALLED = 3.0


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Both methods on the same victims, watched; batches of one victim are nested."""
    side, sizes = scale.options["side"], scale.options["batches"]
    for column, data in columns_of(scale):
        for victim, batch in enumerate(draw(NAME, scale, data, batch_size=max(sizes))):
            for size in sizes:
                for method in METHODS:
                    yield call_cell(
                        {"method": method, "data": column, "batch": size, "victim": victim},
                        "reproductions.thesis.traces:watch_attack",
                        reads=[reads(data, [batch[:size]], size=side)],
                        model=attacked(scale, victim),
                        data=data,
                        indices=[batch[:size]],
                        attack=scale.options["attacks"][method],
                        size=side,
                        seed=victim,
                        pictures=victim == 0,
                    )


def _figures(results: Results) -> list[Drawing]:
    found = []
    for column in results.tags("data"):
        groups: dict[str, dict[str, Tag]] = {
            f"{method}, batch {size}": {"method": method, "data": column, "batch": size}
            for method in METHODS
            for size in results.tags("batch")
        }
        for metric, label in (("mse", "mean squared error"), ("norm", "norm of the difference")):
            title, name = f"{label.capitalize()}, {column}", f"{metric}-{str(column).lower()}"
            found.append(draw_runs(results, groups, metric, title=title, label=label, name=name))
    return found


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Figure 3.3",
    title="distances of pictures over the iterations, by batch size",
    scenario="C",
    claims=(
        Claim(
            "grnn-falls-for-all",
            "GRNN's pictures come nearer to the truth at every batch size.",
            "curves fall for 1, 4, 8 and 16 on three data sets",
            every(*(rises("psnr@0", "psnr@100", unit="dB", method="GRNN", batch=size) for size in BATCHES)),
        ),
        Claim(
            "dlg-stalls-on-photographs",
            "On photographs DLG gains less than 3 dB on its start at batches of 4 and more.",
            "does not converge at 4, 8 and 16 on CIFAR-100 and LFW",
            every(
                *(
                    stalls("psnr@0", "psnr@100", STALLED, method="DLG", batch=size, data="CIFAR-100")
                    for size in BATCHES[1:]
                )
            ),
        ),
        Claim(
            "grnn-ends-nearer-in-batches",
            "At every batch size above 1 GRNN's pictures end nearer to the truth than DLG's.",
            "significantly better at larger batch sizes; DLG works on MNIST at 4 and 8",
            every(
                *(
                    above(
                        "mse@100",
                        {"method": "DLG", "batch": size},
                        {"method": "GRNN", "batch": size},
                        unit="squared error",
                    )
                    for size in BATCHES[1:]
                )
            ),
        ),
        Claim(
            "dlg-ends-nearer-alone",
            "At batch 1 DLG's picture ends nearer to the truth than GRNN's.",
            "GRNN's MSE and WD are slightly higher",
            above("psnr@100", {"method": "DLG", "batch": 1}, {"method": "GRNN", "batch": 1}),
        ),
    ),
    numbers=tuple(
        PaperNumber(
            "Figure 3.3", f"{method}, {column}", f"batch {size}, last MSE", None, "", metric="mse@100", tags=tags
        )
        for method in METHODS
        for column in COLUMNS
        for size in BATCHES
        for tags in [{"method": method, "data": column, "batch": size}]
    ),
    scales=(
        smoke_scale(batches=[1]),
        RecipeScale(
            "cpu",
            8,
            victims=2,
            among=800,
            steps=400,
            models=("lenet-grnn",),
            data=sets_of(COLUMNS[:2]),
            options={
                "columns": list(COLUMNS[:2]),
                "among": CPU_TEST,
                "side": SIDE,
                "batches": list(BATCHES),
                "attacks": {"GRNN": "grnn:steps=400", "DLG": "dlg:steps=60,retries=0"},
            },
        ),
        paper_scale(
            400,
            COLUMNS,
            victims=10,
            among=2_000,
            batches=list(BATCHES),
        ),
    ),
    cells=cells,
    figures=_figures,
    stand_ins={"MNIST": STAND_INS["MNIST"]},
    notes=(
        "WD is the norm of the difference of pictures, and the release's log calls the mean absolute error MSE; here "
        "MSE is the mean squared error. All three are measured.",
        "Pictures are paired with the truth by least error at every point.",
        SCHEDULES,
        UNTRAINED,
    ),
)
