"""Ren's thesis, Table 5.5: pictures that GGL generates with and without a key-lock."""

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
    call_cell,
    draw_victims,
    network,
    succeeds,
)
from leakscope.reproduction.drawing import Drawing, compare_groups
from leakscope.reproduction.papers import THESIS
from reproductions.thesis.locks import ARMS, KNOWN, LOCKED, NOTES, PLAIN, RELU, UNSCALED
from reproductions.thesis.table_5_6 import METRICS, PRINTED_GGL

NAME = "thesis/table-5-5"
METHODS = (PLAIN, UNSCALED, LOCKED, KNOWN, RELU)
AT_SMOKE = (PLAIN, LOCKED, KNOWN)
OURS = {"PSNR": "legacy", "LPIPS-A": "lpips", "SSIM": "ssim"}
WHY_NOT = {
    "MSE": "the root of the mean squared error in 8-bit steps; it follows from the PSNR beside it: 255² / 10^(PSNR/10)",
    "LPIPS-V": "cells measure LPIPS with AlexNet",
}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Every arm on the same pictures with the same prior; a ResNet normalises in every one."""
    data, options = scale.data[0], scale.options
    victims = draw_victims(NAME, scale.name, count=scale.victims, among=scale.among, data=data)
    reads = [{"name": data, "split": "test", "indices": [place for one in victims for place in one]}]
    prior = options["prior"]
    if prior is not None:
        reads.append({"name": data, "split": "train", "count": prior["examples"], "seed": 0})
    for method in METHODS if scale.is_evidence else AT_SMOKE:
        defence, adaptive = ARMS[method]
        yield call_cell(
            {"method": method},
            "reproductions.thesis.generated:rebuild",
            reads=reads,
            model=network(scale.models[0], mode="train"),
            data=data,
            indices=victims,
            size=options["size"],
            prior=prior,
            attack=options["attack"],
            defence=defence,
            adaptive=adaptive,
            lpips=scale.is_evidence,
        )


def _figures(results: Results) -> list[Drawing]:
    told = {"title": "PSNR of what GGL generates", "label": "PSNR (dB)", "name": "methods"}
    return [compare_groups(results, "psnr", group="method", **told)]


def _numbers() -> Iterator[PaperNumber]:
    for place, (metric, unit) in enumerate(METRICS):
        for method, value in zip((PLAIN, LOCKED), PRINTED_GGL[2 * place : 2 * place + 2], strict=True):
            told = ("Table 5.6", "GGL, ResNet-18, ILSVRC", f"{metric} {method}", value, unit)
            if metric in WHY_NOT:
                yield PaperNumber(*told, why_not=WHY_NOT[metric])
            else:
                yield PaperNumber(*told, metric=OURS[metric], tags={"method": method})
    for method in METHODS[1:]:
        tags = {"method": method}
        yield PaperNumber("Table 5.5", "GGL", f"labels read off {method}", None, "", metric="label_correct", tags=tags)


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Table 5.5",
    title="what GGL generates of one picture with and without a key-lock",
    scenario="C",
    claims=(
        Claim(
            "same-class",
            "Behind a key-lock GGL still reads the class off in nine of ten cases.",
            "samples of the right class in every row, by eye",
            succeeds("label_correct", 0.5, share=0.9, method=LOCKED),
        ),
        Claim(
            "other-picture",
            "Behind a key-lock GGL's picture is further from the true one, in PSNR.",
            "30.22 to 28.79 dB in the PSNR of its code (12.3 to 9.5 dB); colours and poses differ, by eye",
            above("psnr", {"method": PLAIN}, {"method": LOCKED}),
        ),
        Claim(
            "other-structure",
            "Behind a key-lock GGL's picture is less similar in structure.",
            "SSIM 0.231 to 0.180",
            above("ssim", {"method": PLAIN}, {"method": LOCKED}, unit="SSIM"),
        ),
        Claim(
            "protects-against-a-knowing-ggl",
            "GGL that searches for scale and shift, too, and ended well, is further from the true picture than behind "
            "the same normalisation without a lock.",
            "no such attacker",
            above("ended_well", {"method": PLAIN}, {"method": KNOWN}),
        ),
    ),
    numbers=tuple(_numbers()),
    scales=(
        RecipeScale(
            "smoke",
            0.01,
            victims=1,
            among=300,
            steps=2,
            models=("reproductions.networks:small_convnet",),
            data=("digits",),
            options={"size": None, "prior": None, "attack": {"optimiser": "adam", "steps": 2}},
        ),
        # A prior is trained once for each process, half a minute; five arms of six pictures, a sixth of a minute each.
        RecipeScale(
            "cpu",
            8,
            victims=6,
            among=800,
            steps=120,
            models=("resnet20",),
            data=("cifar10",),
            options={
                "size": None,
                "prior": {"examples": 3_000, "epochs": 6},
                "attack": {"optimiser": "adam", "steps": 120},
            },
        ),
        RecipeScale(
            "paper",
            1_500_000,
            victims=20,
            among=10_000,
            steps=500,
            models=("resnet18",),
            data=("imagenet",),
            options={
                "size": 256,
                "prior": {"examples": 100_000, "epochs": 30},
                "attack": {"optimiser": "cma-es", "steps": 500},
            },
        ),
    ),
    cells=cells,
    figures=_figures,
    stand_ins={
        "ILSVRC2012 at 256 × 256": "cifar10 at 32 × 32, whose training part is apart from the victims",
        "ResNet-18": "ResNet-20",
        "BigGAN": "a small generator trained on 3,000 training pictures; it knows no classes: what it generates has "
        "none, and only the class that is read off can be compared",
        "CMA-ES": "Adam, 120 steps, at cpu",
    },
    legacy_metric="psnr_root_mse_8bit",
    notes=(
        *NOTES,
        "A search ends as a call of its own: PSNR of those that are no evidence of protection is left out of the claim "
        "about attackers who know, and counts in the claims about GGL as published.",
    ),
)
