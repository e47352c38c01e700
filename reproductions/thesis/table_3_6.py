"""Ren's thesis, Table 3.6: up to which batch size DLG and GRNN rebuild recognisable pictures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
from leakscope.reproduction.drawing import Drawing, draw_lines
from leakscope.reproduction.papers import THESIS
from reproductions.thesis.setting import (
    ENDINGS,
    RECOGNISABLE,
    SCHEDULES,
    SIDE,
    UNTRAINED,
    attacked,
    columns_of,
    draw,
    paper_scale,
    smoke_scale,
)
from reproductions.thesis.verdicts import falls_short, means_over

NAME = "thesis/table-3-6"
COLUMNS = ("MNIST", "CIFAR-100", "LFW")
BATCHES = (1, 4, 8, 16, 32, 64, 128, 256)
MEASURED = (1, 4, 8, 16, 32)
# ✓ as y, × as n, – where nothing is printed, in the order of BATCHES; ResNet-18's last two rows are not legible in
# the text at hand.
PRINTED = {
    ("DLG", "LeNet", "MNIST"): "yyynnnnn",
    ("DLG", "LeNet", "CIFAR-100"): "ynnnnnnn",
    ("DLG", "LeNet", "LFW"): "ynnnnnnn",
    ("GRNN", "LeNet", "MNIST"): "yyyyyyyy",
    ("GRNN", "LeNet", "CIFAR-100"): "yyyyyyyn",
    ("GRNN", "LeNet", "LFW"): "yyyyyynn",
    ("GRNN", "ResNet-18", "MNIST"): "yyyyn---",
}
MARKS = {"y": "✓", "n": "×", "-": "–"}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Batches of one victim are beginnings of its largest one; both methods attack the same."""
    sizes = scale.options["batches"]
    for column, data in columns_of(scale):
        for victim, batch in enumerate(draw(NAME, scale, data, batch_size=max(sizes))):
            for size in sizes:
                for method, model in scale.options["rows"]:
                    residual = model == "ResNet-18"
                    kind = {"name": scale.models[1], "mode": "train"} if residual else {}
                    yield attack_cell(
                        {"method": method, "model": model, "data": column, "batch": size, "victim": victim},
                        model=attacked(scale, victim, **kind),
                        data=data,
                        size=scale.options["side"],
                        indices=[batch[:size]],
                        attack=scale.options["residual"] if residual else scale.options["attacks"][method],
                        scenario="C",
                        seed=victim,
                        pictures=int(victim == 0),
                        expected=ENDINGS,
                    )


def _figures(results: Results) -> list[Drawing]:
    shown = results.where(model="LeNet", data=results.tags("data")[-1])
    lines = {
        str(method): [
            (float(batch), mean)
            for batch in shown.tags("batch")
            for mean in means_over(shown, ["ssim"], method=method, batch=batch)
        ]
        for method in shown.tags("method")
    }
    return [draw_lines(lines, title="SSIM by batch size", x_label="batch size", y_label="SSIM", name="ssim")]


_LENET: dict[str, Any] = {"model": "LeNet", "data": "CIFAR-100"}

RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Table 3.6",
    title="success and failure of DLG and GRNN by batch size",
    scenario="C",
    claims=(
        Claim(
            "grnn-above-dlg-in-batches",
            "On photographs GRNN rebuilds better than DLG at every batch size above 1.",
            "GRNN ✓ from 4 to 128, DLG × from 4 on",
            every(
                *(
                    above(
                        "ssim",
                        {"method": "GRNN", "batch": size, **_LENET},
                        {"method": "DLG", "batch": size, **_LENET},
                        unit="SSIM",
                        ended="any",
                    )
                    for size in MEASURED[1:]
                )
            ),
        ),
        Claim(
            "grnn-succeeds-at-32",
            "GRNN's pictures are recognisable at a batch of 32 photographs.",
            "✓ up to 128 in the table; the text says 64",
            reaches("ssim", RECOGNISABLE, unit="SSIM", ended="any", method="GRNN", batch=32, **_LENET),
        ),
        Claim(
            "dlg-succeeds-alone",
            "DLG's picture of a single photograph is recognisable.",
            "✓ at batch 1",
            reaches("ssim", RECOGNISABLE, unit="SSIM", ended="any", method="DLG", batch=1, **_LENET),
        ),
        Claim(
            "dlg-fails-in-batches",
            "DLG's pictures are not recognisable at any batch of 4 photographs or more.",
            "× from 4 to 256",
            every(
                *(
                    falls_short("ssim", RECOGNISABLE, unit="SSIM", method="DLG", batch=size, **_LENET)
                    for size in MEASURED[1:]
                )
            ),
        ),
    ),
    numbers=tuple(
        PaperNumber(
            "Table 3.6",
            f"{method}, {model}, {column}",
            f"batch {size}: {MARKS[mark]}; ours: SSIM",
            None,
            "",
            metric="ssim",
            tags={"method": method, "model": model, "data": column, "batch": size},
        )
        for (method, model, column), marks in PRINTED.items()
        for size, mark in zip(BATCHES, marks, strict=True)
        if mark != "-"
    ),
    scales=(
        smoke_scale(
            columns=["CIFAR-100"],
            batches=[4],
            rows=[["GRNN", "LeNet"], ["DLG", "LeNet"]],
            residual="",
        ),
        RecipeScale(
            "cpu",
            9,
            victims=4,
            among=800,
            steps=600,
            models=("lenet-grnn",),
            data=("cifar100",),
            options={
                "columns": ["CIFAR-100"],
                "side": SIDE,
                "batches": list(MEASURED),
                "rows": [["GRNN", "LeNet"], ["DLG", "LeNet"]],
                "attacks": {"GRNN": "grnn:steps=600", "DLG": "dlg:steps=80,retries=1"},
                "residual": "",
            },
        ),
        paper_scale(
            60_000,
            COLUMNS,
            victims=10,
            among=10_000,
            models=("lenet-grnn", "resnet18-grnn"),
            batches=list(BATCHES),
            rows=[["GRNN", "LeNet"], ["DLG", "LeNet"], ["GRNN", "ResNet-18"]],
            residual="grnn:steps=1000,schedule=paper,tv=1e-6",
        ),
    ),
    cells=cells,
    figures=_figures,
    notes=(
        f"The thesis calls a picture a success where a person recognises it; here its SSIM is above {RECOGNISABLE}, "
        "the threshold that the thesis names for its success curves. Pictures are shown beside it.",
        "Table and text disagree on GRNN: the table has ✓ up to 128 for CIFAR-100 and 64 for LFW, the text 64 and 128.",
        SCHEDULES,
        UNTRAINED,
    ),
)
