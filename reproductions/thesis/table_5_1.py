"""Ren's thesis, Table 5.1: what a key-lock costs in accuracy."""

from __future__ import annotations

from collections.abc import Iterator

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, Results, above, every
from leakscope.reproduction.drawing import Drawing, compare_groups
from leakscope.reproduction.papers import THESIS
from reproductions.thesis.locks import (
    LOCKED,
    NORMALISED,
    PLACES,
    PLAIN,
    RELU,
    TRAINING_NOTES,
    TRAINING_STAND_INS,
    UNSCALED,
    lock_trainings,
    training_scales,
)

NAME = "thesis/table-5-1"
COLUMNS = (
    ("LeNet", "MNIST"),
    *(
        (model, data)
        for model in ("ResNet-20", "ResNet-32", "ResNet-18", "ResNet-34", "VGG-16")
        for data in ("C-10", "C-100")
    ),
)
PRINTED = {
    ("Cen.", PLAIN): (98.09, 91.63, 67.59, 92.34, 70.35, 91.62, 72.15, 92.20, 73.21, 89.13, 63.23),
    ("Cen.", LOCKED): (98.07, 90.58, 67.49, 91.05, 69.89, 93.12, 75.90, 94.68, 78.22, 93.84, 74.86),
    ("FL", PLAIN): (98.14, 91.20, 58.58, 91.37, 61.91, 89.50, 68.59, 89.27, 68.30, 88.13, 61.91),
    ("FL", LOCKED): (97.45, 88.45, 61.97, 89.29, 64.17, 91.66, 74.19, 93.27, 76.61, 93.54, 73.06),
}
REFERENCE = {("LeNet", "MNIST"): 99.05, ("ResNet-20", "C-10"): 91.25, ("ResNet-32", "C-10"): 92.49}
MOST = 0.03
UNIT = "share right"


def costs_less(place: str, *, method: str = LOCKED, than: str = PLAIN, most: float = MOST, **tags: str):
    """Whether `method` loses less than `most` against `than`; pairs are seeds of one network and set."""
    return above(
        "accuracy",
        {"method": method, "place": place, **tags},
        {"method": than, "place": place, **tags},
        unit=UNIT,
        least=-most,
    )


def _figures(results: Results) -> list[Drawing]:
    return [
        compare_groups(
            results,
            "accuracy",
            group="method",
            title=f"Accuracy at the end, {model}, {place}",
            label=UNIT,
            name=f"{str(model).lower()}-{str(place).lower().rstrip('.')}",
            model=model,
            place=place,
        )
        for model in results.tags("model")
        for place in results.tags("place")
    ]


def _numbers() -> Iterator[PaperNumber]:
    for (place, method), values in PRINTED.items():
        for (model, data), value in zip(COLUMNS, values, strict=True):
            yield _number(place, method, model, data, value)
    for (model, data), value in REFERENCE.items():
        why = "accuracies of other papers, which the thesis quotes"
        yield PaperNumber("Table 5.1", "Reference", f"{model}, {data}", value, "%", why_not=why)
    for place in PLACES:
        for method in (NORMALISED, UNSCALED, RELU):
            yield _number(place, method, "LeNet", "MNIST", None)


def _number(place: str, method: str, model: str, data: str, value: float | None) -> PaperNumber:
    tags = {"model": model, "data": data, "place": place, "method": method}
    column = f"{model}, {data}"
    return PaperNumber("Table 5.1", f"{place}, {method}", column, value, "%", metric="accuracy", tags=tags, factor=100)


CLAIMS = (
    Claim(
        "lenet-costs-little",
        "A key-lock costs LeNet less than 3 points, in one place and federatedly.",
        "98.07 against 98.09 %, 97.45 against 98.14 %",
        every(*(costs_less(place, model="LeNet") for place in PLACES)),
    ),
    Claim(
        "resnet-costs-little",
        "A key-lock costs ResNet-20 on CIFAR-10 less than 3 points, in one place and federatedly.",
        "90.58 against 91.63 %, 88.45 against 91.20 %",
        every(*(costs_less(place, model="ResNet-20", data="C-10") for place in PLACES)),
    ),
    Claim(
        "fair-lenet-costs-little",
        "Against the same normalisation with a trained scale and shift, a key-lock costs LeNet less than 3 points.",
        "not compared: the LeNet without the lock has no normalisation",
        every(*(costs_less(place, than=NORMALISED, model="LeNet") for place in PLACES)),
    ),
    Claim(
        "relu-costs-little",
        "With the released code's ReLU on scale and shift, the lock costs less than 3 points against normalisation.",
        "not compared: one result, of code with ReLU and formulas without",
        every(
            costs_less("FL", method=RELU, than=NORMALISED, model="LeNet"),
            costs_less("FL", method=RELU, model="ResNet-20", data="C-10"),
        ),
    ),
    Claim(
        "helps-resnet-20-on-cifar-100",
        "Federatedly, a key-lock makes ResNet-20 better on CIFAR-100.",
        "61.97 against 58.58 %",
        costs_less("FL", most=0.0, model="ResNet-20", data="C-100"),
    ),
    Claim(
        "helps-at-224-pixels",
        "At 224 × 224 a key-lock makes ResNet-18, ResNet-34 and VGG-16 better, in one place and federatedly.",
        "93.12 against 91.62 % (ResNet-18), 94.68 against 92.20 % (ResNet-34), 93.84 against 89.13 % (VGG-16)",
        every(
            *(
                costs_less(place, most=0.0, model=model)
                for place in PLACES
                for model in ("ResNet-18", "ResNet-34", "VGG-16")
            )
        ),
    ),
)

RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Table 5.1",
    title="accuracy with and without a key-lock, in one place and at three clients",
    scenario="no server attacks: a training",
    claims=CLAIMS,
    numbers=tuple(_numbers()),
    # 94 trainings of 200 rounds with three seeds each; those at 224 pixels take nearly all of it.
    scales=training_scales(smoke=0.01, cpu=24, paper=6_000_000),
    cells=lock_trainings,
    figures=_figures,
    stand_ins=TRAINING_STAND_INS,
    notes=TRAINING_NOTES,
)
