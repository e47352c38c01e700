"""Ren's thesis, Table 5.2: accuracy and loss over epochs with and without a key-lock."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, RecipeCell, RecipeScale, Results
from leakscope.reproduction.drawing import Drawing, draw_lines
from leakscope.reproduction.papers import THESIS
from reproductions.thesis.by_seed import judge_seeds
from reproductions.thesis.locks import (
    LOCKED,
    NORMALISED,
    PLAIN,
    TRAINING_NOTES,
    TRAINING_STAND_INS,
    lock_trainings,
    training_scales,
)

NAME = "thesis/table-5-2"
NEAR = 0.03
METHODS = (PLAIN, NORMALISED, LOCKED)


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """The trainings of Table 5.1 in one place, with the lock and without."""
    for cell in lock_trainings(scale):
        if cell.tags["place"] == "Cen." and cell.tags["method"] in METHODS:
            yield cell


def between(one: list[float], other: list[float]) -> float:
    """Mean of the first curve less the second, over the rounds."""
    return fmean(left - right for left, right in zip(one, other, strict=True))


def _curves(results: Results, first: str, second: str, **tags: str) -> list[list[float]] | None:
    pair = [results.where(method=method, **tags) for method in (first, second)]
    if any(len(one) != 1 or not one.cells[0].is_ok for one in pair):
        return None
    return [[float(value) for value in one.cells[0].values["accuracies"]] for one in pair]


def _near(model: str, data: str, *, than: str = PLAIN):
    """What is left of 3 points between the mean heights of the two curves, whichever is above."""

    def measure(results: Results) -> float | None:
        curves = _curves(results, LOCKED, than, model=model, data=data)
        return None if curves is None else NEAR - abs(between(*curves))

    return judge_seeds(measure, unit=f"share right, {NEAR:g} less the distance of the curves")


def _above(model: str, data: str):
    """How far the curve with the lock lies above the one without."""

    def measure(results: Results) -> float | None:
        curves = _curves(results, LOCKED, PLAIN, model=model, data=data)
        return None if curves is None else between(*curves)

    return judge_seeds(measure, unit="share right")


def _figures(results: Results) -> list[Drawing]:
    first = results.where(seed=results.tags("seed")[0])
    drawn = []
    for model in first.tags("model"):
        for metric, label in (("accuracies", "share right"), ("losses", "loss")):
            lines = {
                f"{one.cell.tags['method']}, {one.cell.tags['data']}": [
                    (float(place), float(value))
                    for place, value in enumerate(one.values[metric], start=1)
                    if value is not None
                ]
                for one in first.where(model=model)
                if one.values
            }
            name = f"{str(model).lower()}-{metric}"
            drawn.append(draw_lines(lines, title=f"{model}, in one place", x_label="epoch", y_label=label, name=name))
    return drawn


def _numbers() -> Iterator[PaperNumber]:
    columns = [("LeNet", "MNIST")]
    columns += [
        (model, data)
        for model in ("ResNet-20", "ResNet-32", "ResNet-18", "ResNet-34", "VGG-16")
        for data in ("C-10", "C-100")
    ]
    for model, data in columns:
        for method in (PLAIN, LOCKED):
            tags = {"model": model, "data": data, "method": method}
            yield PaperNumber(
                "Table 5.2", method, f"{model}, {data}, at the end", None, "%", metric="accuracy", tags=tags, factor=100
            )


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Table 5.2",
    title="curves of trainings in one place with and without a key-lock",
    scenario="no server attacks: a training",
    claims=(
        Claim(
            "resnet-20-curves-together",
            "ResNet-20's curves with and without the lock are less than 3 points apart on CIFAR-10.",
            "the gap is small and convergence the same, by eye",
            _near("ResNet-20", "C-10"),
        ),
        Claim(
            "lenet-curves-together",
            "LeNet's curve with the lock and that with normalisation alone are less than 3 points apart.",
            "not shown for LeNet; no curve of normalisation alone",
            _near("LeNet", "MNIST", than=NORMALISED),
        ),
        Claim(
            "above-at-high-resolution",
            "At 224 × 224 ResNet-18's curve with the lock lies above the one without.",
            "superior at high resolution, by eye",
            _above("ResNet-18", "C-10"),
        ),
    ),
    numbers=tuple(_numbers()),
    scales=training_scales(smoke=0.01, cpu=0.1, paper=1),
    cells=cells,
    figures=_figures,
    stand_ins=TRAINING_STAND_INS,
    shares="thesis/table-5-1",
    notes=TRAINING_NOTES,
)
