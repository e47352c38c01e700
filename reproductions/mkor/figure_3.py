"""MKOR, Figure 3: a batch of digits by MKOR, GI and class fishing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, RecipeCell, RecipeScale, above
from leakscope.reproduction.papers import MKOR
from reproductions.mkor import table_2
from reproductions.mkor.methods import COUNTED, RAW_NLL

NAME = "mkor/figure-3"
METHODS = ("MKOR", "GI", "CF")


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """The cells of Table 2 on the original network."""
    for cell in table_2.cells(scale):
        if cell.tags["network"] == "Original LeNet" and cell.tags["method"] in METHODS:
            yield cell


RECIPE = PaperRecipe(
    name=NAME,
    paper=MKOR,
    item="Figure 3",
    title="a batch of a hundred digits from the original LeNet-5, by attack",
    scenario="B",
    claims=(
        Claim(
            "looks-better-than-gi",
            "MKOR's pictures look more like the originals than those of GI.",
            "by eye; Table 2 has SSIM 0.27 against 0.13",
            above("ssim", {"method": "MKOR"}, {"method": "GI"}, unit="SSIM"),
        ),
        Claim(
            "more-than-one",
            "MKOR shows something of more pictures than class fishing, which rebuilds one.",
            "one picture of a batch",
            above("rebuilt", {"method": "MKOR"}, {"method": "CF"}, unit="share"),
        ),
    ),
    numbers=tuple(
        PaperNumber(
            "Figure 3", method, "best picture, no number printed", None, metric="psnr_max", tags={"method": method}
        )
        for method in METHODS
    ),
    # The cells are those of another recipe, which pays for them.
    scales=tuple(replace(scale, minutes=0.01) for scale in table_2.RECIPE.scales),
    cells=cells,
    stand_ins=table_2.RECIPE.stand_ins,
    legacy_metric="psnr_target_peak",
    shares=table_2.NAME,
    notes=(RAW_NLL, COUNTED),
)
