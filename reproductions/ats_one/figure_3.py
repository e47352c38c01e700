"""ATS replication I, Figure 3: originals and what was rebuilt of them, with and without the hybrid policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from leakscope.reproduction import (
    Claim,
    ClaimVerdict,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    above,
    untestable,
)
from leakscope.reproduction.papers import ATS_ONE
from reproductions.ats_one import table_1
from reproductions.ats_policies import HOME, NONE, policy_cells, psnr_above, psnr_metric

NAME = "ats_one/figure-3"
ROWS = (NONE, "Hybrid")
SHOWN = 2


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Those cells of Table 1 that keep their pictures."""
    for setting in scale.options["blocks"]:
        policies = {row: numbers for row, numbers in table_1.policies_of(setting).items() if row in ROWS}
        for cell in policy_cells(scale, setting, policies):
            if int(cell.tags["victim"]) < SHOWN:
                yield cell


def _smaller_gap(results: Results) -> ClaimVerdict:
    return untestable("the numbers of the original's pictures stand in its figure alone", n=len(results))


def _with_hybrid(block: Mapping[str, Any]) -> bool:
    return "Hybrid" in table_1.policies_of(block)


def _scale(scale: RecipeScale, minutes: float) -> RecipeScale:
    blocks = [block for block in scale.options["blocks"] if _with_hybrid(block)]
    return replace(scale, minutes=minutes, seeds=(0,), options={"attack": scale.options["attack"], "blocks": blocks})


RECIPE = PaperRecipe(
    name=NAME,
    paper=ATS_ONE,
    item="Figure 3",
    title="pictures and their reconstructions with and without the hybrid policy",
    scenario="B",
    claims=(
        Claim(
            "worse-psnr",
            "Pictures are rebuilt with a lower PSNR behind the hybrid policy than without a policy.",
            "lower for most of 12 pictures; the numbers stand in the figure, which the text at hand does not hold",
            psnr_above({"policy": NONE}, {"policy": "Hybrid"}),
        ),
        Claim(
            "worse-ssim",
            "Their structure, too, is worse: SSIM with the picture that the client owns is lower.",
            "by eye: a less pronounced effect than in the original paper",
            above("ssim", {"policy": NONE}, {"policy": "Hybrid"}, unit="SSIM"),
        ),
        Claim(
            "smaller-gap",
            "The gap between the two is smaller than in the original paper's figure.",
            "for all 12 pictures the visual effect is less pronounced and the gap in PSNR smaller",
            _smaller_gap,
        ),
    ),
    numbers=tuple(
        PaperNumber(
            "Figure 3",
            row,
            f"{data}, {model}, PSNR",
            None,
            metric=psnr_metric(row),
            tags={"policy": row, "data": data, "model": model},
        )
        for data, model in (("CIFAR-100", "ResNet20-4"), ("CIFAR-100", "ConvNet"), ("F-MNIST", "ResNet20-4"))
        for row in ROWS
    ),
    scales=(
        _scale(table_1.RECIPE.scale("smoke"), 0.01),
        # All cells are Table 1's.
        _scale(table_1.RECIPE.scale("cpu"), 0.01),
        _scale(table_1.RECIPE.scale("paper"), 14_000),
    ),
    cells=cells,
    shares=HOME,
    stand_ins=table_1.STAND_INS,
    notes=("Originals are shown as the client owns them; ats_two/figure-3 shows the transformed ones as well.",),
)
