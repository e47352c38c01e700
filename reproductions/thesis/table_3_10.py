"""Ren's thesis, Table 3.10: GRNN's pictures by resolution, one picture a gradient."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, RecipeCell, RecipeScale, every, reaches
from leakscope.reproduction.papers import THESIS
from reproductions.thesis import table_3_9
from reproductions.thesis.setting import RECOGNISABLE


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """The cells of single pictures, of Table 3.9."""
    for cell in table_3_9.cells(scale):
        if cell.tags["batch"] == 1:
            yield cell


RECIPE = PaperRecipe(
    name="thesis/table-3-10",
    paper=THESIS,
    item="Table 3.10",
    title="GRNN's pictures by resolution, behind a non-converged ResNet-18",
    scenario="C",
    claims=(
        Claim(
            "recognisable-at-32-and-64",
            "A single picture is recognisable at 32 × 32 and at 64 × 64.",
            "pictures at 32, 64, 128 and 256 pixels, by eye",
            every(
                *(reaches("ssim", RECOGNISABLE, unit="SSIM", ended="any", resolution=side) for side in (32, 64)),
            ),
        ),
    ),
    numbers=tuple(
        PaperNumber("Table 3.10", f"{side}*{side}", "PSNR", None, tags={"resolution": side})
        for side in table_3_9.PRINTED
    ),
    scales=tuple(replace(one, minutes=min(one.minutes, 0.1)) for one in table_3_9.RECIPE.scales),
    cells=cells,
    stand_ins=table_3_9.RECIPE.stand_ins,
    shares=table_3_9.NAME,
    notes=("The cells are Table 3.9's, which run once.", "The thesis prints pictures and no numbers here."),
)
