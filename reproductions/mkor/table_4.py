"""MKOR, Table 4: photographs of ImageNet in large batches, with and without noise."""

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
    reaches,
)
from leakscope.reproduction.drawing import Drawing, compare_groups
from leakscope.reproduction.papers import MKOR
from reproductions.mkor.methods import COLUMNS, COUNTED, RAW_NLL, mkor_cell, print_row
from reproductions.mkor.servers import scale_noise

NAME = "mkor/table-4"
SIGMA = 0.1
# Rows of the first linear layer that are in use in the paper: a thousand classes of VGG16's 4,096, or all.
PAPER_ROWS = {"VGG16": 1_000 / 4_096, "modified": 1.0}
NETWORKS = {"VGG16": "vgg16", "modified": "mkor-copy"}
# Largest and mean SSIM, largest and mean PSNR; infinite PSNR is left out here and in the numbers.
PRINTED = {
    ("VGG16", "unique", "none"): (0.93, 0.48, 30.12, 17.88),
    ("VGG16", "unique", "noise"): (0.92, 0.45, 29.99, 17.50),
    ("VGG16", "random", "none"): (0.90, 0.42, 30.05, 15.05),
    ("VGG16", "random", "noise"): (0.88, 0.41, 26.44, 14.80),
    ("modified", "unique", "none"): (1.00, 1.00),
    ("modified", "unique", "noise"): (0.97, 0.80, 31.24, 31.00),
    ("modified", "random", "none"): (1.00, 0.72),
    ("modified", "random", "noise"): (0.88, 0.52, 28.37, 17.63),
}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Every part of the table on its own data: parts are told apart by network, classes of the batch and noise."""
    for column, classes, data, model, rows, size, count, pool in scale.options["parts"]:
        batches = draw_victims(
            NAME, scale.name, count=scale.victims, among=scale.options["images"][data], data=data, batch_size=pool
        )
        sigma = scale_noise(SIGMA, rows=count / rows, paper_rows=PAPER_ROWS[column])
        for place, drawn in enumerate(batches):
            for noise in scale.options.get("noise", ("none", "noise")):
                yield mkor_cell(
                    {"network": column, "classes": classes, "noise": noise, "batch": place},
                    model=network(model, seed=place, normalise=None),
                    data=data,
                    pool=drawn if classes == "unique" else drawn[:count],
                    attack="mkor:loss=raw-nll",
                    loss="raw-nll",
                    different=count if classes == "unique" else None,
                    size=size,
                    defence="none" if noise == "none" else f"gaussian-noise:sigma={sigma:.6g},relative=True",
                    seed=place,
                    pictures=4 * (place == 0),
                )


def _figures(results: Results) -> list[Drawing]:
    return [
        compare_groups(
            results,
            "psnr",
            group="noise",
            title=f"Average PSNR with and without noise, {column}",
            label="PSNR (dB)",
            name=f"noise-{str(column).lower()}",
            network=column,
        )
        for column in results.tags("network")
    ]


def _numbers() -> Iterator[PaperNumber]:
    for (column, classes, noise), values in PRINTED.items():
        tags = {"network": column, "classes": classes, "noise": noise}
        said = f"{classes} batch, {'Gaussian noise of 0.1' if noise == 'noise' else 'no noise'}"
        if len(values) == len(COLUMNS):
            yield from print_row("Table 4", said, column, values, tags=tags)
            continue
        for (name, metric, unit), value in zip(COLUMNS, (*values, None, None), strict=True):
            yield PaperNumber("Table 4", said, f"{column}, {name}", value, unit, metric=metric, tags=tags)


_VGG = {"network": "VGG16", "classes": "unique"}
CLAIMS = (
    Claim(
        "best-above-25",
        "The best photograph of a batch comes back above 25 dB through an unchanged VGG16.",
        "30.12 dB from unique batches, 30.05 from random ones; 29.99 and 26.44 under noise",
        reaches("psnr_max", 25.0, network="VGG16", classes="unique", noise="none"),
    ),
    Claim(
        "robust-to-noise",
        "Noise of a tenth of the gradient's deviation takes less than a decibel on average through VGG16.",
        "17.50 against 17.88 dB from unique batches, 14.80 against 15.05 dB from random ones",
        above("psnr", {**_VGG, "noise": "noise"}, {**_VGG, "noise": "none"}, least=-1.0),
    ),
    Claim(
        "best-robust-to-noise",
        "Under noise of a tenth the best photograph of a batch still comes back above 25 dB through VGG16.",
        "29.99 dB from unique batches",
        reaches("psnr_max", 25.0, network="VGG16", classes="unique", noise="noise"),
    ),
    Claim(
        "modified-is-exact",
        "On a network that loses nothing pictures of different classes come back exactly, above 100 dB.",
        "infinite PSNR, SSIM 1.00",
        reaches("psnr", 100.0, network="modified", classes="unique", noise="none"),
    ),
    Claim(
        "repeats-cost",
        "On that network random batches, whose classes repeat, come back worse than unique ones.",
        "SSIM 0.72 against 1.00 on average",
        above(
            "ssim",
            {"network": "modified", "classes": "unique", "noise": "none"},
            {"network": "modified", "classes": "random", "noise": "none"},
            unit="SSIM",
        ),
    ),
)


def _part(column: str, classes: str, data: str, *, rows: int, size: int | None, count: int, pool: int) -> list[object]:
    return [column, classes, data, NETWORKS[column], rows, size, count, pool]


RECIPE = PaperRecipe(
    name=NAME,
    paper=MKOR,
    item="Table 4",
    title="photographs of ImageNet in large batches, with and without Gaussian noise",
    scenario="B",
    claims=CLAIMS,
    numbers=tuple(_numbers()),
    scales=(
        RecipeScale(
            "smoke",
            0.01,
            victims=1,
            models=("mkor-copy",),
            data=("sample-photos",),
            options={
                "parts": [_part("modified", "unique", "sample-photos", rows=7, size=None, count=4, pool=30)],
                "images": {"sample-photos": 39},
            },
        ),
        RecipeScale(
            "cpu",
            10,
            victims=5,
            models=("vgg16", "mkor-copy"),
            data=("imagenet", "tiny-imagenet"),
            options={
                "parts": [
                    _part("VGG16", "unique", "imagenet", rows=4_096, size=224, count=10, pool=30),
                    _part("modified", "unique", "tiny-imagenet", rows=202, size=64, count=100, pool=400),
                    _part("modified", "random", "tiny-imagenet", rows=202, size=64, count=100, pool=400),
                ],
                "images": {"imagenet": 200, "tiny-imagenet": 2_020},
            },
        ),
        RecipeScale(
            "paper",
            1_200,
            victims=3,
            models=("vgg16", "mkor-copy"),
            data=("imagenet",),
            options={
                "parts": [
                    _part(column, classes, "imagenet", rows=rows, size=224, count=1_000, pool=16_000)
                    for column, rows in (("VGG16", 4_096), ("modified", 1_000))
                    for classes in ("unique", "random")
                ],
                "images": {"imagenet": 50_000},
            },
        ),
    ),
    cells=cells,
    figures=_figures,
    stand_ins={
        "a thousand photographs of ImageNet": "ten sample photographs of different classes behind VGG16 at cpu; a "
        "hundred pictures of Tiny ImageNet at 64 px behind the modified network",
    },
    legacy_metric="psnr_target_peak",
    notes=(
        RAW_NLL,
        COUNTED,
        "Noise is relative to the deviation of a whole tensor, most of whose rows are zero in a small batch. So it is "
        "enlarged by the root of the share of rows in use there over ours: a class's row is hidden as much.",
        "Unique batches at the scale of the paper need all 1,000 classes among 16,000 photographs drawn, and memory "
        "for a thousand at once. The paper has ten batches, here are three: there are 50,000 to draw from.",
    ),
)
