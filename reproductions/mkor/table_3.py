"""MKOR, Table 3: batches of different classes of CIFAR-100 behind VGG16."""

from __future__ import annotations

from collections.abc import Iterator

from leakscope.reproduction import (
    Claim,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    above,
    draw_victims,
    every,
    network,
    reaches,
)
from leakscope.reproduction.cells import Spec
from leakscope.reproduction.drawing import Drawing, compare_groups
from leakscope.reproduction.papers import MKOR
from reproductions.mkor.methods import COUNTED, RAW_NLL, mkor_cell, print_row

NAME = "mkor/table-3"
PRINTED = {
    "GI": (0.52, 0.37, 17.51, 11.2),
    "CF": (0.81, None, 21.56, None),
    "MKOR": (0.98, 0.87, 33.85, 24.14),
}
MODIFIED = (1.000, 1.000, 163.557, 156.650)
CROSS_ENTROPY = "MKOR, cross-entropy"
LOSSES = {"MKOR": "raw-nll", CROSS_ENTROPY: "cross-entropy"}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """MKOR on the enlarged pictures, the searches on pictures of their own size; all on the same batches."""
    for place, pool in enumerate(draw(scale)):
        for method in scale.options.get("methods", ("GI", "CF", *LOSSES)):
            if place < scale.options["most"].get(method, scale.victims):
                yield _cell(scale, method, place, pool)
        for method in scale.options.get("modified", LOSSES):
            yield mkor_cell(
                {"network": "modified", "method": method, "batch": place},
                model=_network("mkor-copy", place),
                data=scale.data[0],
                pool=pool,
                attack=f"mkor:loss={LOSSES[method]}",
                loss=LOSSES[method],
                # Cross-entropy needs a class that does not occur.
                different=scale.options["modified_batch"] - (method == CROSS_ENTROPY),
                seed=place,
            )


def draw(scale: RecipeScale) -> list[list[int]]:
    """Pictures to choose batches of different classes from: labels are not known before the data are."""
    size = scale.options["pool"]
    return draw_victims(NAME, scale.name, count=scale.victims, among=scale.among, data=scale.data[0], batch_size=size)


def _network(name: str, seed: int) -> Spec:
    """The release has no normalising layer."""
    return network(name, seed=seed, normalise=None)


def _cell(scale: RecipeScale, method: str, place: int, pool: list[int]) -> RecipeCell:
    attacks = {
        "GI": f"inverting-gradients:layers=all,steps={scale.steps}",
        "CF": f"class-fishing:steps={scale.options['fishing_steps']}",
    }
    is_search = method in attacks
    return mkor_cell(
        {"network": "VGG16", "method": method, "batch": place},
        model=_network(scale.models[0], place),
        data=scale.data[0],
        pool=pool,
        attack=attacks.get(method, f"mkor:loss={LOSSES.get(method)}"),
        loss=LOSSES.get(method, "cross-entropy"),
        different=scale.options["batch"],
        size=scale.options["search_size" if is_search else "size"],
        seed=place,
        pictures=6 * (place == 0),
    )


def _figures(results: Results) -> list[Drawing]:
    vgg = results.where(network="VGG16")
    return [
        compare_groups(vgg, metric, group="method", title=f"{said}, VGG16", label="PSNR (dB)", name=metric)
        for metric, said in (("psnr", "Average PSNR"), ("psnr_max", "PSNR of the best picture"))
    ]


def _above(ours: str, other: str, metric: str, *, unit: str = "dB", least: float = 0.0):
    left, right = ({"network": "VGG16", "method": method} for method in (ours, other))
    return above(metric, left, right, unit=unit, least=least)


CLAIMS = (
    Claim(
        "mean-psnr",
        "On average over a batch MKOR's PSNR is above that of GI.",
        "24.14 against 11.2 dB",
        _above("MKOR", "GI", "psnr"),
    ),
    Claim(
        "mean-ssim",
        "On average over a batch MKOR's SSIM is above that of GI.",
        "0.87 against 0.37",
        _above("MKOR", "GI", "ssim", unit="SSIM"),
    ),
    Claim(
        "best-psnr",
        "MKOR's best picture of a batch has a higher PSNR than those of GI and class fishing.",
        "33.85 against 17.51 and 21.56 dB",
        every(_above("MKOR", "GI", "psnr_max"), _above("MKOR", "CF", "psnr_max")),
    ),
    Claim(
        "best-ssim",
        "MKOR's best picture of a batch has a higher SSIM than those of GI and class fishing.",
        "0.98 against 0.52 and 0.81",
        every(_above("MKOR", "GI", "ssim_max", unit="SSIM"), _above("MKOR", "CF", "ssim_max", unit="SSIM")),
    ),
    Claim(
        "modified-is-exact",
        "On a network that loses nothing MKOR rebuilds pictures of different classes exactly, above 100 dB.",
        "156.650 dB on average, 163.557 dB at best",
        reaches("psnr", 100.0, network="modified", method="MKOR"),
    ),
    Claim(
        "also-under-cross-entropy",
        "Where clients train with cross-entropy and a class is absent MKOR rebuilds as well, within half a decibel.",
        "the text does not restrict the loss; the released client does not use cross-entropy",
        _above(CROSS_ENTROPY, "MKOR", "psnr", least=-0.5),
    ),
)

RECIPE = PaperRecipe(
    name=NAME,
    paper=MKOR,
    item="Table 3",
    title="batches of different classes of CIFAR-100 behind VGG16",
    scenario="B",
    claims=CLAIMS,
    numbers=(
        *(
            number
            for method, values in PRINTED.items()
            for number in print_row("Table 3", method, "VGG16", values, tags={"network": "VGG16", "method": method})
        ),
        *print_row("section 4", "MKOR", "modified network", MODIFIED, tags={"network": "modified", "method": "MKOR"}),
    ),
    scales=(
        RecipeScale(
            "smoke",
            0.01,
            victims=1,
            among=39,
            steps=2,
            models=("mkor-strided",),
            data=("sample-photos",),
            options={
                "pool": 30,
                "batch": 3,
                "modified_batch": 5,
                "size": 32,
                "search_size": 32,
                "fishing_steps": 2,
                "most": {},
                "methods": ["CF"],
                "modified": ["MKOR", CROSS_ENTROPY],
            },
        ),
        RecipeScale(
            "cpu",
            11,
            victims=8,
            among=800,
            steps=60,
            models=("vgg16",),
            data=("cifar100",),
            options={
                "pool": 90,
                "batch": 10,
                "modified_batch": 45,
                "size": 224,
                "search_size": 32,
                "fishing_steps": 100,
                "most": {"GI": 4, "CF": 4},
            },
        ),
        RecipeScale(
            "paper",
            500_000,
            victims=10,
            among=10_000,
            steps=4_800,
            models=("vgg16",),
            data=("cifar100",),
            options={
                "pool": 990,
                "batch": 100,
                "modified_batch": 100,
                "size": 224,
                "search_size": 224,
                "fishing_steps": 4_800,
                "most": {},
                # A hundred classes of a hundred leave none absent.
                "methods": ["GI", "CF", "MKOR"],
            },
        ),
    ),
    cells=cells,
    figures=_figures,
    stand_ins={
        "batches of 100": "batches of 10 of different classes at cpu: MKOR reads classes apart whatever their number, "
        "and GI is the better the fewer they are",
        "GI and CF at 224 px": "the same network for the pictures' own 32 px at cpu, GI on the first four batches",
    },
    legacy_metric="psnr_target_peak",
    notes=(
        RAW_NLL + " The rows named cross-entropy read against a class that does not occur.",
        COUNTED,
        "Pictures are drawn, and the batch is the first of each class among them. The modified network is the released "
        "one, two copying convolutions and one linear layer; our PSNR ends at 150 dB.",
    ),
)
