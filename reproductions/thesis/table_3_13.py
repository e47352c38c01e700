"""Ren's thesis, Table 3.13: labels that DLG and GRNN infer, by batch size."""

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
)
from leakscope.reproduction.drawing import Drawing, draw_lines
from leakscope.reproduction.papers import THESIS
from reproductions.thesis.setting import (
    CPU_TEST,
    ENDINGS,
    SCHEDULES,
    SIDE,
    STAND_INS,
    UNTRAINED,
    attacked,
    columns_of,
    draw,
    paper_scale,
    sets_of,
    smoke_scale,
)
from reproductions.thesis.verdicts import above_by_unit, means_over

NAME = "thesis/table-3-13"
COLUMNS = ("MNIST", "CIFAR-100", "LFW")
BATCHES = (1, 4, 8, 16, 32, 64, 128, 256)
# Per cent and standard deviation (printed as a share), in the order of BATCHES.
PRINTED: dict[tuple[str, str, str], tuple[tuple[float, float], ...]] = {
    ("DLG", "LeNet", "MNIST"): (
        (100.0, 0.0), (97.50, 0.0750), (100.0, 0.0), (94.38, 0.0337), (90.62, 0.0242), (90.31, 0.0260),
        (91.41, 0.0152), (92.42, 0.0181),
    ),
    ("DLG", "LeNet", "CIFAR-100"): (
        (100.0, 0.0), (97.50, 0.0750), (98.75, 0.0375), (97.50, 0.0306), (92.50, 0.0287), (89.84, 0.0329),
        (86.33, 0.0295), (85.70, 0.0289),
    ),
    ("DLG", "LeNet", "LFW"): (
        (100.0, 0.0), (80.00, 0.3317), (90.00, 0.1561), (85.00, 0.2358), (88.44, 0.1683), (70.62, 0.3924),
        (89.53, 0.2985), (79.69, 0.3985),
    ),
    ("GRNN", "LeNet", "MNIST"): (
        (100.0, 0.0), (100.0, 0.0), (97.50, 0.0500), (97.50, 0.0415), (97.50, 0.0187), (96.25, 0.0188),
        (96.25, 0.0171), (96.37, 0.0165),
    ),
    ("GRNN", "LeNet", "CIFAR-100"): (
        (100.0, 0.0), (100.0, 0.0), (100.0, 0.0), (99.38, 0.0188), (99.69, 0.0094), (98.91, 0.0122),
        (98.75, 0.0080), (96.80, 0.0108),
    ),
    ("GRNN", "LeNet", "LFW"): (
        (100.0, 0.0), (97.50, 0.0750), (98.75, 0.0375), (100.0, 0.0), (100.0, 0.0), (99.69, 0.0062),
        (99.69, 0.0071), (99.84, 0.0019),
    ),
    ("GRNN", "ResNet-18", "MNIST"): ((100.0, 0.0),) * 5,
    ("GRNN", "ResNet-18", "CIFAR-100"): ((100.0, 0.0),) * 5,
    ("GRNN", "ResNet-18", "LFW"): ((100.0, 0.0),) * 4 + ((94.06, 0.0452),),
}  # fmt: skip
# The last column, as printed.
AVERAGES = {
    ("DLG", "LeNet", "MNIST"): (94.23, 0.0254),
    ("DLG", "LeNet", "CIFAR-100"): (93.51, 0.0329),
    ("DLG", "LeNet", "LFW"): (85.41, 0.2477),
    ("GRNN", "LeNet", "MNIST"): (97.73, 0.0203),
    ("GRNN", "LeNet", "CIFAR-100"): (99.19, 0.0074),
    ("GRNN", "LeNet", "LFW"): (99.43, 0.0160),
    ("GRNN", "ResNet-18", "MNIST"): (100.0, 0.0),
    ("GRNN", "ResNet-18", "CIFAR-100"): (100.0, 0.0),
    ("GRNN", "ResNet-18", "LFW"): (98.81, 0.0090),
}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Batches of one victim are beginnings of its largest one; both methods attack the same."""
    sizes = scale.options["batches"]
    for column, data in columns_of(scale):
        for victim, batch in enumerate(draw(NAME, scale, data, batch_size=max(sizes))):
            for method, model in scale.options["rows"]:
                residual = model == "ResNet-18"
                for size in [one for one in sizes if one <= 32 or not residual]:
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
                        expected=ENDINGS,
                    )


def _figures(results: Results) -> list[Drawing]:
    lines = {
        f"{method}, {column}": [
            (float(batch), 100 * mean)
            for batch in results.tags("batch")
            for mean in means_over(results, ["label_correct"], method=method, data=column, batch=batch, model="LeNet")
        ]
        for method in results.tags("method")
        for column in results.tags("data")
    }
    title = "Labels inferred by batch size"
    return [draw_lines(lines, title=title, x_label="batch size", y_label="labels right (%)", name="labels")]


def _more_labels(column: str):
    return above_by_unit(
        "label_correct",
        {"method": "GRNN", "model": "LeNet", "data": column},
        {"method": "DLG", "model": "LeNet", "data": column},
        per=("victim",),
        unit="share",
    )


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Table 3.13",
    title="labels that DLG and GRNN infer, by batch size",
    scenario="C",
    claims=(
        Claim(
            "grnn-infers-more",
            "On average over batch sizes GRNN infers more labels than DLG.",
            "98.8 against 91.1 % in the mean of the three averages",
            above_by_unit(
                "label_correct",
                {"method": "GRNN", "model": "LeNet"},
                {"method": "DLG", "model": "LeNet"},
                per=("data", "victim"),
                unit="share",
            ),
        ),
        Claim(
            "on-every-data-set",
            "On each of the three data sets GRNN infers more labels than DLG.",
            "97.73 against 94.23, 99.19 against 93.51, 99.43 against 85.41 %",
            every(*(_more_labels(column) for column in COLUMNS)),
        ),
        Claim(
            "fewer-in-larger-batches",
            "DLG and GRNN infer a smaller share of the labels of 16 pictures than of one.",
            "from 100 % to 92 % (DLG) and 99 % (GRNN) in the mean of the three data sets",
            every(
                *(
                    above(
                        "label_correct",
                        {"method": method, "model": "LeNet", "batch": 1},
                        {"method": method, "model": "LeNet", "batch": 16},
                        unit="share",
                        ended="any",
                    )
                    for method in ("DLG", "GRNN")
                )
            ),
        ),
    ),
    numbers=(
        *(
            PaperNumber(
                "Table 3.13",
                f"{method}, {model}, {column}",
                f"batch {size}",
                value,
                "%",
                spread=100 * spread,
                metric="label_correct",
                factor=100,
                tags={"method": method, "model": model, "data": column, "batch": size},
            )
            for (method, model, column), values in PRINTED.items()
            for size, (value, spread) in zip(BATCHES, values, strict=False)
        ),
        *(
            PaperNumber(
                "Table 3.13",
                f"{method}, {model}, {column}",
                "average",
                value,
                "%",
                spread=100 * spread,
                metric="label_correct",
                factor=100,
                tags={"method": method, "model": model, "data": column},
            )
            for (method, model, column), (value, spread) in AVERAGES.items()
        ),
    ),
    scales=(
        smoke_scale(batches=[2], rows=[["GRNN", "LeNet"], ["DLG", "LeNet"]], residual=""),
        RecipeScale(
            "cpu",
            9,
            victims=3,
            among=800,
            steps=400,
            models=("lenet-grnn",),
            data=sets_of(COLUMNS),
            options={
                "columns": list(COLUMNS),
                "among": CPU_TEST,
                "side": SIDE,
                "batches": [1, 4, 8, 16],
                "rows": [["GRNN", "LeNet"], ["DLG", "LeNet"]],
                "attacks": {"GRNN": "grnn:steps=400", "DLG": "dlg:steps=60,retries=1"},
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
    stand_ins=STAND_INS,
    notes=(
        "A label counts for the picture that its own picture is paired with by least error, as the thesis counts; "
        "where pictures fail, pairs are chance, and right labels may count as wrong.",
        "Batches of one victim are nested, so that a victim counts once in an average.",
        f"At scale cpu the average is over 1, 4, 8 and 16. {SCHEDULES}",
        UNTRAINED,
    ),
)
