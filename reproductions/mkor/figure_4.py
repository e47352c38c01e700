"""MKOR, Figure 4: a batch of CIFAR-100 by MKOR, GI and class fishing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, RecipeCell, RecipeScale, above
from leakscope.reproduction.papers import MKOR
from reproductions.mkor import table_3
from reproductions.mkor.methods import COUNTED, RAW_NLL

NAME = "mkor/figure-4"
METHODS = ("MKOR", "GI", "CF")


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """The cells of Table 3 behind VGG16."""
    for cell in table_3.cells(scale):
        if cell.tags["network"] == "VGG16" and cell.tags["method"] in METHODS:
            yield cell


RECIPE = PaperRecipe(
    name=NAME,
    paper=MKOR,
    item="Figure 4",
    title="a batch of CIFAR-100 behind VGG16, by attack",
    scenario="B",
    claims=(
        Claim(
            "most-are-recognisable",
            "MKOR's pictures look more like the originals than those of GI.",
            "by eye: MKOR's are better recognisable, GI's are distorted; Table 3 has SSIM 0.87 against 0.37",
            above("ssim", {"method": "MKOR"}, {"method": "GI"}, unit="SSIM"),
        ),
        Claim(
            "more-than-one",
            "MKOR rebuilds more pictures of a batch than class fishing, which rebuilds one.",
            "class fishing rebuilds only one picture of a batch",
            above("rebuilt", {"method": "MKOR"}, {"method": "CF"}, unit="share"),
        ),
    ),
    numbers=tuple(
        PaperNumber(
            "Figure 4", method, "best picture, no number printed", None, metric="psnr_max", tags={"method": method}
        )
        for method in METHODS
    ),
    # The cells are those of another recipe, which pays for them.
    scales=tuple(replace(scale, minutes=0.01) for scale in table_3.RECIPE.scales),
    cells=cells,
    stand_ins=table_3.RECIPE.stand_ins,
    legacy_metric="psnr_target_peak",
    shares=table_3.NAME,
    notes=(RAW_NLL, COUNTED),
)
