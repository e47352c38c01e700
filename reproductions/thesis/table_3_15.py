"""Ren's thesis, Table 3.15: how often two recognisers know the person in a rebuilt face."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

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
    network,
    reaches,
    training,
)
from leakscope.reproduction.drawing import Drawing, draw_lines
from leakscope.reproduction.papers import THESIS
from leakscope.types import LocalTraining
from reproductions.thesis.faces import TOP
from reproductions.thesis.setting import SCHEDULES, SIDE, SMALL, UNTRAINED, attacked, draw, reads, smoke_scale
from reproductions.thesis.verdicts import means_over, unpaired_above

NAME = "thesis/table-3-15"
RECOGNISERS = {"res18": "ResNet-18", "dense121": "DenseNet-121"}
TRAINING = {"res18": 97.27, "dense121": 97.11}
# Top-1, top-3, top-5 in per cent, by method, recogniser and batch size.
PRINTED = {
    ("DLG", "res18", 1): (25.14, 45.57, 51.86),
    ("DLG", "dense121", 1): (15.57, 33.57, 42.14),
    ("GRNN", "res18", 1): (30.66, 74.79, 88.40),
    ("GRNN", "res18", 4): (17.45, 24.64, 31.11),
    ("GRNN", "res18", 8): (6.14, 13.58, 22.13),
    ("GRNN", "res18", 16): (2.90, 10.43, 22.08),
    ("GRNN", "dense121", 1): (11.46, 43.12, 63.03),
    ("GRNN", "dense121", 4): (9.53, 19.87, 26.80),
    ("GRNN", "dense121", 8): (3.06, 10.25, 19.83),
    ("GRNN", "dense121", 16): (1.52, 8.23, 19.12),
}
DENSE = "reproductions.thesis.faces:small_densenet"
SAMPLES = {1: 700, 4: 1_112, 8: 2_224, 16: 4_352}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Both methods on the same single faces; GRNN on larger batches; a few victims to a cell."""
    data, side, part = scale.data[0], scale.options["side"], scale.options["part"]
    known = {key: _recogniser(scale, name) for key, name in zip(RECOGNISERS, scale.models[1:], strict=True)}
    for size, count in scale.options["batches"]:
        batches = _batches(scale, data, size, count)
        for method in ("GRNN", "DLG") if size == 1 else ("GRNN",):
            for first in range(0, len(batches), part):
                chosen = batches[first : first + part]
                yield call_cell(
                    {"method": method, "batch": size, "part": first // part},
                    "reproductions.thesis.faces:reidentify",
                    reads=[reads(data, chosen, size=side), {"name": data, "split": "train", "size": side}],
                    model=attacked(scale, first),
                    recognisers=known,
                    data=data,
                    indices=chosen,
                    attack=scale.options["attacks"][method],
                    size=side,
                    seed=first,
                    pictures=first == 0,
                )


def _batches(scale: RecipeScale, data: str, size: int, count: int) -> list[list[int]]:
    """The first faces of one order of all, in batches: every face once for each batch size."""
    order = [place for one in draw(NAME, scale, data) for place in one]
    return [order[first * size : (first + 1) * size] for first in range(count)]


def _recogniser(scale: RecipeScale, name: str) -> dict[str, Any]:
    """Trained on the training part alone: no attacked picture is in it."""
    rounds, epochs = scale.options["training"]
    local = LocalTraining(lr=0.003, epochs=epochs, batch_size=16, optimiser="adam", shuffle=True)
    how = training(
        scale.data[0],
        # Several rounds: one pass over few faces leaves running statistics near where they began.
        rounds=rounds,
        local=local,
        examples=scale.options.get("examples"),
        test_examples=8,
        held_out=0.0,
        size=scale.options["side"],
    )
    return network(name, seed=0, trained=how)


def _figures(results: Results) -> list[Drawing]:
    lines = {}
    for key, name in RECOGNISERS.items():
        for method in results.tags("method"):
            for batch in results.where(method=method).tags("batch"):
                metrics = [f"{key}_top{k}" for k in TOP]
                shares = means_over(results, metrics, method=method, batch=batch)
                lines[f"{method}, {name}, batch {batch}"] = [
                    (float(k), 100 * share) for k, share in zip(TOP, shares, strict=False)
                ]
    title = "Faces re-identified among the likeliest"
    return [draw_lines(lines, title=title, x_label="people named", y_label="faces re-identified (%)", name="top")]


def _gain(key: str, k: int):
    return above(
        f"{key}_top{k}", {"method": "GRNN", "batch": 1}, {"method": "DLG", "batch": 1}, unit="share", ended="any"
    )


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Table 3.15",
    title="people re-identified in rebuilt faces, by two recognisers",
    scenario="C",
    claims=(
        Claim(
            "grnn-identifies-more-in-top-3-and-5",
            "Faces that GRNN rebuilt are re-identified among three and among five people more often than DLG's.",
            "by ResNet-18 +29.22 and +36.54, by DenseNet-121 +9.55 and +20.89 points",
            every(*(_gain(key, k) for key in RECOGNISERS for k in (3, 5))),
        ),
        Claim(
            "grnn-identifies-more-in-top-1",
            "By the residual recogniser GRNN's faces are re-identified at once more often than DLG's.",
            "30.66 against 25.14 % by ResNet-18, but 11.46 against 15.57 % by DenseNet-121",
            _gain("res18", 1),
        ),
        Claim(
            "above-chance",
            "Faces that GRNN rebuilt at batch 1 are re-identified at once more often than by chance.",
            "30.66 and 11.46 % against 1 % of 100 people",
            every(
                *(
                    reaches(f"{key}_top1", 1 / 35, unit="share", ended="any", method="GRNN", batch=1)
                    for key in RECOGNISERS
                )
            ),
        ),
        Claim(
            "less-in-larger-batches",
            "Faces that GRNN rebuilt from batches of 16 are re-identified among five people less often.",
            "88.40 against 22.08 % and 63.03 against 19.12 %",
            every(
                *(
                    unpaired_above(
                        f"{key}_top5", {"method": "GRNN", "batch": 1}, {"method": "GRNN", "batch": 16}, unit="share"
                    )
                    for key in RECOGNISERS
                )
            ),
        ),
    ),
    numbers=(
        *(
            PaperNumber(
                "Table 3.15",
                f"{method}, {RECOGNISERS[key]}, batch {batch}",
                f"top-{k}",
                value,
                "%",
                metric=f"{key}_top{k}",
                factor=100,
                tags={"method": method, "batch": batch},
            )
            for (method, key, batch), values in PRINTED.items()
            for k, value in zip(TOP, values, strict=True)
        ),
        *(
            PaperNumber(
                "Table 3.15",
                RECOGNISERS[key],
                "accuracy on true pictures (printed: training)",
                value,
                "%",
                metric=f"{key}_true_top1",
                factor=100,
                tags={"method": "GRNN", "batch": 1},
            )
            for key, value in TRAINING.items()
        ),
    ),
    scales=(
        replace(
            smoke_scale(columns=["VGG-Face"], batches=[[1, 1]], part=1, training=[1, 1], examples=8),
            models=(SMALL, SMALL, SMALL),
        ),
        RecipeScale(
            "cpu",
            6.5,
            victims=64,
            among=70,
            steps=500,
            models=("lenet-grnn", "resnet20", DENSE),
            data=("olivetti",),
            options={
                "side": SIDE,
                "batches": [[1, 24], [4, 6], [8, 4], [16, 4]],
                "part": 6,
                "training": [8, 4],
                "attacks": {"GRNN": "grnn:steps=500", "DLG": "dlg:steps=80,retries=1"},
            },
        ),
        RecipeScale(
            "paper",
            30_000,
            victims=4_352,
            among=10_000,
            steps=1_000,
            models=("lenet-grnn", "resnet18", DENSE),
            data=("folder:vgg-face",),
            options={
                "side": SIDE,
                "batches": [[size, count // size] for size, count in SAMPLES.items()],
                "part": 20,
                "training": [8, 4],
                "attacks": {"GRNN": "grnn:steps=1000,schedule=paper", "DLG": "dlg:steps=300,retries=3"},
            },
        ),
    ),
    cells=cells,
    figures=_figures,
    stand_ins={
        "VGG-Face": "olivetti at 32 × 32, in grey: 35 people with eight training pictures each, for 100 people",
        "ResNet-18": "ResNet-20",
        "DenseNet-121": "three dense blocks of four layers, also at scale paper",
    },
    notes=(
        "Recognisers learn from the training part; attacked faces are from the test part. The thesis does not say so "
        "of its own, and prints 97 % accuracy on training pictures.",
        "The thesis keeps the successfully rebuilt faces only; here every attacked face counts.",
        SCHEDULES,
        UNTRAINED,
    ),
)
