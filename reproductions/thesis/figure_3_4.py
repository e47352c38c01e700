"""Ren's thesis, Figure 3.4: the gradient's error of DLG and GRNN at a batch of 32."""

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
)
from leakscope.reproduction.drawing import Drawing
from leakscope.reproduction.papers import THESIS
from leakscope.reproduction.recipe import Tag
from reproductions.thesis.curves import draw_runs
from reproductions.thesis.setting import SCHEDULES, SIDE, UNTRAINED, attacked, draw, reads, smoke_scale

NAME = "thesis/figure-3-4"
METHODS = ("DLG", "GRNN")


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Both methods on the same batches, watched."""
    side, data = scale.options["side"], scale.data[0]
    for victim, batch in enumerate(draw(NAME, scale, data, batch_size=scale.options["batch"])):
        for method in METHODS:
            yield call_cell(
                {"method": method, "victim": victim},
                "reproductions.thesis.traces:watch_attack",
                reads=[reads(data, [batch], size=side)],
                model=attacked(scale, victim),
                data=data,
                indices=[batch],
                attack=scale.options["attacks"][method],
                size=side,
                seed=victim,
                pictures=victim == 0,
            )


def _figures(results: Results) -> list[Drawing]:
    groups: dict[str, dict[str, Tag]] = {method: {"method": method} for method in METHODS}
    labels = {"gradient": "mean squared error of the gradient", "mse": "mean squared error of pictures"}
    return [
        draw_runs(results, groups, metric, title=label.capitalize(), label=label, name=metric)
        for metric, label in labels.items()
    ]


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Figure 3.4",
    title="error of the gradient at a batch of 32",
    scenario="C",
    claims=(
        Claim(
            "dlg-matches-the-gradient-better",
            "At a batch of 32 DLG ends with a smaller error of the gradient than GRNN.",
            "DLG's loss is the smaller one, by eye",
            above("gradient@100", {"method": "GRNN"}, {"method": "DLG"}, unit="squared error of the gradient"),
        ),
        Claim(
            "yet-its-pictures-are-worse",
            "At a batch of 32 GRNN's pictures are nearer to the truth than DLG's all the same.",
            "DLG fails to recover the pictures",
            above("mse@100", {"method": "DLG"}, {"method": "GRNN"}, unit="squared error of pictures"),
        ),
    ),
    numbers=tuple(
        PaperNumber("Figure 3.4", method, f"last error of {what}", None, "", metric=f"{key}@100", tags=tags)
        for method in METHODS
        for key, what in (("gradient", "the gradient"), ("mse", "pictures"))
        for tags in [{"method": method}]
    ),
    scales=(
        smoke_scale(batch=2),
        RecipeScale(
            "cpu",
            4,
            victims=4,
            among=800,
            steps=300,
            models=("lenet-grnn",),
            data=("cifar100",),
            options={
                "side": SIDE,
                "batch": 32,
                "attacks": {"GRNN": "grnn:steps=300", "DLG": "dlg:steps=40,retries=0"},
            },
        ),
        RecipeScale(
            "paper",
            120,
            victims=10,
            among=10_000,
            steps=1_000,
            models=("lenet-grnn",),
            data=("cifar100",),
            options={
                "side": SIDE,
                "batch": 32,
                "attacks": {"GRNN": "grnn:steps=1000,schedule=paper", "DLG": "dlg:steps=300,retries=3"},
            },
        ),
    ),
    cells=cells,
    figures=_figures,
    notes=(
        "Both errors are ‖difference of gradients‖² over the number of weights; GRNN minimises ‖d‖² + ‖d‖, from which "
        "‖d‖² is computed.",
        SCHEDULES,
        UNTRAINED,
    ),
)
