"""MKOR, section 4: pictures that were transformed before training."""

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
    draw_victims,
    network,
)
from leakscope.reproduction.drawing import Drawing, compare_groups
from leakscope.reproduction.papers import MKOR
from reproductions.mkor.methods import COUNTED, RAW_NLL, mkor_cell

NAME = "mkor/transformations"
# Policies of ATS that were searched on CIFAR-100.
DEFENCES = {"none": "none", "3-1-7": "transforms:policy=3-1-7", "43-18-18": "transforms:policy=43-18-18"}
NETWORKS = {"VGG16": "vgg16", "modified": "mkor-copy"}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """MKOR on plain and on transformed pictures, on the same batches of different classes."""
    data = scale.data[0]
    batches = draw_victims(
        NAME, scale.name, count=scale.victims, among=scale.among, data=data, batch_size=scale.options["pool"]
    )
    for place, pool in enumerate(batches):
        for column, size, count, most in scale.options["parts"]:
            for name in scale.options.get("defences", DEFENCES):
                if place < most:
                    yield mkor_cell(
                        {"network": column, "policy": name, "batch": place},
                        model=network(NETWORKS[column], seed=place, normalise=None),
                        data=data,
                        pool=pool,
                        attack="mkor:loss=raw-nll",
                        loss="raw-nll",
                        different=count,
                        size=size,
                        defence=DEFENCES[name],
                        seed=place,
                        pictures=4 * (place == 0),
                    )


def _figures(results: Results) -> list[Drawing]:
    return [
        compare_groups(
            results,
            metric,
            group="policy",
            title=f"PSNR against the {said}, {column}",
            label="PSNR (dB)",
            name=f"{metric.replace('_', '-')}-{str(column).lower()}",
            network=column,
        )
        for column in results.tags("network")
        for metric, said in (("trained_psnr", "transformed picture"), ("psnr", "original"))
    ]


def _as_well(column: str, policy: str) -> Claim:
    return Claim(
        f"{policy}-{column.lower()}",
        f"MKOR rebuilds pictures transformed by {policy} as well as plain ones, within a decibel ({column}).",
        "transformations do not work: MKOR recovers the transformed input; no numbers",
        above(
            "trained_psnr",
            {"network": column, "policy": policy},
            {"network": column, "policy": "none"},
            least=-1.0,
        ),
    )


RECIPE = PaperRecipe(
    name=NAME,
    paper=MKOR,
    item="section 4, transformations",
    title="pictures of CIFAR-100 transformed by policies of ATS before training",
    scenario="B",
    claims=tuple(_as_well(column, policy) for column in NETWORKS for policy in DEFENCES if policy != "none"),
    numbers=tuple(
        PaperNumber(
            "section 4",
            column,
            f"{policy}, PSNR of what was trained on",
            None,
            metric="trained_psnr",
            tags={"network": column, "policy": policy},
        )
        for column in NETWORKS
        for policy in DEFENCES
    ),
    scales=(
        RecipeScale(
            "smoke",
            0.01,
            victims=1,
            among=39,
            models=("mkor-copy",),
            data=("sample-photos",),
            options={"pool": 30, "parts": [["modified", 32, 4, 1]], "defences": ["none", "3-1-7"]},
        ),
        RecipeScale(
            "cpu",
            5,
            victims=5,
            among=800,
            models=("vgg16", "mkor-copy"),
            data=("cifar100",),
            options={"pool": 120, "parts": [["VGG16", 224, 8, 3], ["modified", 32, 50, 5]]},
        ),
        RecipeScale(
            "paper",
            120,
            victims=10,
            among=10_000,
            models=("vgg16", "mkor-copy"),
            data=("cifar100",),
            options={"pool": 990, "parts": [["VGG16", 224, 100, 10], ["modified", 32, 100, 10]]},
        ),
    ),
    cells=cells,
    figures=_figures,
    legacy_metric="psnr_target_peak",
    stand_ins={"batches of 100": "batches of 8 behind VGG16 and of 50 behind the modified network at cpu"},
    notes=(
        RAW_NLL,
        COUNTED,
        "Pictures are enlarged to 224 px before they are transformed, so that a policy acts on what VGG16 receives. "
        "The original is not rebuilt: `psnr` beside `trained_psnr`.",
    ),
)
