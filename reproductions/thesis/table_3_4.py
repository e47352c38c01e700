"""Ren's thesis, Table 3.4: PSNR of DLG and GRNN at batch 1, behind non-converged and converged networks."""

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
    reaches,
)
from leakscope.reproduction.drawing import Drawing, compare_groups
from leakscope.reproduction.papers import THESIS
from reproductions.thesis.setting import (
    CPU_TRAIN,
    ENDINGS,
    LEGACY_NOTE,
    RECOGNISABLE,
    SCHEDULES,
    SIDE,
    STAND_INS,
    UNTRAINED,
    attacked,
    columns_of,
    converge,
    draw,
    paper_scale,
    sets_of,
    smoke_scale,
)
from reproductions.thesis.verdicts import falls_short

NAME = "thesis/table-3-4"
COLUMNS = ("MNIST", "CIFAR-100", "LFW")
LEGACY = "psnr_root_mse_8bit"
NON_CONVERGED, CONVERGED = "non-converged", "converged"
PRINTED: dict[tuple[str, str], tuple[tuple[float | None, float | None], ...]] = {
    ("DLG", "LeNet"): ((53.67, None), (49.05, 33.81), (41.97, None)),
    ("GRNN", "LeNet"): ((56.61, 30.81), (47.03, 28.75), (43.01, 28.21)),
    ("GRNN", "ResNet-18"): ((37.27, 38.67), (29.57, 27.93), (31.07, 27.91)),
}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Victims are training pictures of the client, so that a converged network knows them; one network a victim.

    Converged networks are trained once for each data set.
    """
    for (method, model), states in scale.options["rows"]:
        for column, data in columns_of(scale):
            if model == "ResNet-18" and column not in scale.options["residual"]["columns"]:
                continue
            for state in states:
                yield from _victims(scale, method, model, column, data, state)


def _victims(scale: RecipeScale, method: str, model: str, column: str, data: str, state: str) -> Iterator[RecipeCell]:
    residual, side = model == "ResNet-18", scale.options["side"]
    kind = {"name": scale.models[1], "mode": "train"} if residual else {}
    epochs = scale.options["epochs"]
    trained = converge(data, epochs=epochs[column], size=side) if state == CONVERGED else None
    attack = scale.options["residual"]["attack"] if residual else scale.options["attacks"][method]
    victims = draw(NAME, scale, data)[: scale.options["residual"]["victims"] if residual else None]
    for victim, batch in enumerate(victims):
        yield attack_cell(
            {"method": method, "model": model, "data": column, "state": state, "victim": victim},
            model=attacked(scale, 0 if trained else victim, trained=trained, **kind),
            data=data,
            split="train",
            size=side,
            indices=[batch],
            attack=attack,
            scenario="C",
            seed=victim,
            legacy=LEGACY,
            pictures=int(victim == 0),
            expected=ENDINGS,
        )


def _figures(results: Results) -> list[Drawing]:
    return [
        compare_groups(
            results.where(state=state, model="LeNet"),
            "psnr",
            group="method",
            title=f"PSNR behind {state} LeNets",
            label="PSNR (dB)",
            name=f"psnr-{state}",
        )
        for state in results.tags("state")
    ]


def _gains(column: str):
    return above(
        "psnr",
        {"method": "GRNN", "model": "LeNet", "state": NON_CONVERGED, "data": column},
        {"method": "DLG", "model": "LeNet", "state": NON_CONVERGED, "data": column},
        ended="any",
    )


ALL_ROWS = [[list(key), [NON_CONVERGED, CONVERGED]] for key in PRINTED]

RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Table 3.4",
    title="PSNR of DLG and GRNN, one picture a gradient, by the state of the attacked network",
    scenario="C",
    claims=(
        Claim(
            "grnn-above-dlg-on-digits-and-faces",
            "Behind a non-converged LeNet GRNN rebuilds digits and faces better than DLG.",
            "+2.94 dB on MNIST and +1.04 dB on LFW, in the printed formula",
            every(_gains("MNIST"), _gains("LFW")),
        ),
        Claim(
            "dlg-above-grnn-on-photographs",
            "Behind a non-converged LeNet DLG rebuilds photographs better than GRNN.",
            "DLG ahead by 2.01 dB on CIFAR-100, in the printed formula",
            above(
                "psnr",
                {"method": "DLG", "model": "LeNet", "state": NON_CONVERGED, "data": "CIFAR-100"},
                {"method": "GRNN", "model": "LeNet", "state": NON_CONVERGED, "data": "CIFAR-100"},
                ended="any",
            ),
        ),
        Claim(
            "non-converged-gives-away-more",
            "GRNN rebuilds better behind a non-converged LeNet than behind a converged one.",
            "56.61 against 30.81, 47.03 against 28.75, 43.01 against 28.21 dB",
            above(
                "psnr",
                {"method": "GRNN", "model": "LeNet", "state": NON_CONVERGED},
                {"method": "GRNN", "model": "LeNet", "state": CONVERGED},
            ),
        ),
        Claim(
            "dlg-fails-behind-converged",
            "Behind a converged LeNet DLG rebuilds no recognisable digit or face.",
            "dashes on MNIST and LFW",
            every(
                *(
                    falls_short("ssim", RECOGNISABLE, unit="SSIM", method="DLG", state=CONVERGED, data=column)
                    for column in ("MNIST", "LFW")
                )
            ),
        ),
        Claim(
            "resnet-leaks-to-grnn",
            "GRNN rebuilds recognisable pictures behind a non-converged ResNet-18.",
            "37.27, 29.57 and 31.07 dB, where DLG always fails",
            reaches(
                "ssim", RECOGNISABLE, unit="SSIM", ended="any", method="GRNN", model="ResNet-18", state=NON_CONVERGED
            ),
        ),
    ),
    numbers=tuple(
        PaperNumber(
            "Table 3.4",
            f"{method}, {model}",
            f"{column}, {state}",
            value,
            metric=LEGACY,
            tags={"method": method, "model": model, "data": column, "state": state},
        )
        for (method, model), rows in PRINTED.items()
        for column, values in zip(COLUMNS, rows, strict=True)
        for state, value in zip((NON_CONVERGED, CONVERGED), values, strict=True)
    ),
    scales=(
        smoke_scale(
            rows=[[["GRNN", "LeNet"], [NON_CONVERGED]], [["DLG", "LeNet"], [NON_CONVERGED]]],
            residual={"columns": [], "victims": 0, "attack": ""},
            epochs={"MNIST": 1},
        ),
        RecipeScale(
            "cpu",
            7,
            victims=5,
            among=486,
            steps=600,
            models=("lenet-grnn", "resnet18-grnn"),
            data=sets_of(COLUMNS),
            options={
                "columns": list(COLUMNS),
                "among": CPU_TRAIN,
                "side": SIDE,
                "attacks": {"GRNN": "grnn:steps=600", "DLG": "dlg:steps=100,retries=1"},
                "rows": [*ALL_ROWS[:2], [["GRNN", "ResNet-18"], [NON_CONVERGED]]],
                "residual": {"columns": ["CIFAR-100"], "victims": 2, "attack": "grnn:steps=300,tv=1e-6"},
                "epochs": {"MNIST": 30, "CIFAR-100": 100, "LFW": 100},
            },
        ),
        paper_scale(
            9_000,
            COLUMNS,
            victims=50,
            among=10_000,
            models=("lenet-grnn", "resnet18-grnn"),
            rows=ALL_ROWS,
            residual={
                "columns": list(COLUMNS),
                "victims": 50,
                "attack": "grnn:steps=1000,schedule=paper,tv=1e-6",
            },
            epochs={"MNIST": 30, "CIFAR-100": 100, "LFW": 100},
        ),
    ),
    cells=cells,
    figures=_figures,
    stand_ins=STAND_INS,
    legacy_metric=LEGACY,
    notes=(
        LEGACY_NOTE,
        UNTRAINED,
        SCHEDULES,
        "Converged: all training pictures, the victims among them, to a training accuracy of 99 % or more.",
        "ResNet-18 normalises with the statistics of the batch, as in the release; at scale cpu two victims of "
        "CIFAR-100, untrained, for 300 iterations.",
    ),
)
