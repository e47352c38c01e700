"""ATS replication I, Table 5: policies that were searched on CIFAR-100, applied to Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, RecipeCell, RecipeScale, Results, above, every
from leakscope.reproduction.drawing import Drawing, compare_groups
from leakscope.reproduction.papers import ATS_ONE
from reproductions.ats_one.table_1 import CPU_ACCURACIES, CPU_FASHION, PAPER_BLOCKS, SMOKE_ACCURACY, SMOKE_BLOCK
from reproductions.ats_one.table_1 import STAND_INS as TABLE_1_STAND_INS
from reproductions.ats_policies import (
    HOME,
    NONE,
    NUMBERS,
    SEARCH,
    accuracy_cells,
    policy_cells,
    psnr_above,
    psnr_metric,
)

NAME = "ats_one/table-5"
# (PSNR, standard deviation, accuracy) by network and row.
PRINTED = {
    "ResNet20-4": {
        NONE: (9.81, 4.41, 95.19),
        "3-1-7": (9.30, 2.72, 93.20),
        "43-18-18": (10.03, 2.23, 94.88),
        "Hybrid": (7.49, 1.57, 94.49),
    },
    "ConvNet": {
        NONE: (9.52, 3.27, 94.61),
        "21-13-3": (9.99, 2.12, 92.38),
        "7-4-15": (9.34, 1.62, 94.35),
        "Hybrid": (11.50, 5.80, 93.77),
    },
}


def policies_of(setting: Mapping[str, Any]) -> dict[str, str]:
    """Numbers by row; the hybrid draws one of the network's two."""
    rows = list(PRINTED[setting["model"]])
    searched = "+".join(row for row in rows if row[0].isdigit())
    found = {row: searched if row == "Hybrid" else NUMBERS.get(row, row) for row in rows}
    return {row: found[row] for row in setting.get("rows") or rows}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Victims and the row without a policy are those of Table 1."""
    for setting in scale.options["blocks"]:
        yield from policy_cells(scale, setting, policies_of(setting))
    for setting in scale.options["accuracies"]:
        yield from accuracy_cells(scale, setting, policies_of(setting))


def _figures(results: Results) -> list[Drawing]:
    title, label = "PSNR against the private picture, by policy", "PSNR (dB)"
    return [compare_groups(results, "psnr", group="policy", title=title, label=label, name="policies")]


def _lower(row: str) -> Any:
    return psnr_above({"policy": NONE}, {"policy": row})


def _numbers() -> Iterator[PaperNumber]:
    for (model, rows), block in zip(PRINTED.items(), "ab", strict=True):
        for policy, (psnr, spread, accuracy) in rows.items():
            tags = {"model": model, "policy": policy}
            yield PaperNumber(
                f"Table 5 ({block})", policy, "PSNR", psnr, spread=spread, metric=psnr_metric(policy), tags=tags
            )
            yield PaperNumber(
                f"Table 5 ({block})", policy, "accuracy", accuracy, "%", metric="accuracy", tags=tags, factor=100
            )


SMOKE = {"data": "F-MNIST"}
RECIPE = PaperRecipe(
    name=NAME,
    paper=ATS_ONE,
    item="Table 5",
    title="PSNR and accuracy of CIFAR-100's policies on Fashion-MNIST",
    scenario="B",
    claims=(
        Claim(
            "policies-transfer",
            "Policies searched on CIFAR-100, 3-1-7 and 43-18-18, lower what is rebuilt of Fashion-MNIST.",
            "Gao et al.: they do; this replication: 9.30 and 10.03 against 9.81 dB, not effective",
            every(_lower("3-1-7"), _lower("43-18-18")),
        ),
        Claim(
            "hybrid-transfers",
            "Their hybrid lowers what is rebuilt of Fashion-MNIST.",
            "7.49 against 9.81 dB on ResNet20-4, but 11.50 against 9.52 dB on ConvNet",
            _lower("Hybrid"),
        ),
        Claim(
            "accuracy",
            "They cost at most three points of accuracy there.",
            "at most 2.0 points on ResNet20-4, 2.2 on ConvNet",
            every(
                *(
                    above("accuracy", {"policy": row}, {"policy": NONE}, least=-0.03, unit="share")
                    for row in ("3-1-7", "43-18-18", "Hybrid")
                )
            ),
        ),
    ),
    numbers=tuple(_numbers()),
    scales=(
        RecipeScale(
            "smoke",
            0.01,
            steps=2,
            options={
                "attack": SEARCH,
                "blocks": [SMOKE_BLOCK | SMOKE | {"rows": [NONE, "Hybrid"]}],
                "accuracies": [SMOKE_ACCURACY | SMOKE | {"rows": [NONE]}],
            },
        ),
        # 9 attacks of 28 s, three networks of 35 s, 9 trainings of 20 s; the row without a policy is Table 1's.
        RecipeScale(
            "cpu",
            9,
            seeds=(0, 1, 2),
            steps=200,
            options={"attack": SEARCH, "blocks": [CPU_FASHION], "accuracies": CPU_ACCURACIES[1:]},
        ),
        RecipeScale(
            "paper",
            55_000,
            steps=4_800,
            options={"attack": "adam-cosine", "blocks": PAPER_BLOCKS[2:], "accuracies": PAPER_BLOCKS[2:]},
        ),
    ),
    cells=cells,
    figures=_figures,
    shares=HOME,
    stand_ins={
        name: text
        for name, text in TABLE_1_STAND_INS.items()
        if name.startswith(("Adam", "networks", "accuracy on Fashion"))
    },
    notes=("PSNR is against the transformed picture.", "At scale cpu ResNet20-4 alone."),
)
