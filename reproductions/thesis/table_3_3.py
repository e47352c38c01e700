"""Ren's thesis, Table 3.3: pictures that GRNN rebuilds behind a converged network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, RecipeCell, RecipeScale, above, every, reaches
from leakscope.reproduction.papers import THESIS
from reproductions.thesis import table_3_4
from reproductions.thesis.setting import RECOGNISABLE, STAND_INS
from reproductions.thesis.table_3_4 import COLUMNS, CONVERGED, NON_CONVERGED

OURS: dict[str, Any] = {"method": "GRNN", "model": "LeNet", "state": CONVERGED}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """GRNN's cells behind LeNet, of Table 3.4."""
    for cell in table_3_4.cells(scale):
        if cell.tags["method"] == "GRNN" and cell.tags["model"] == "LeNet":
            yield cell


# At the smallest scale Table 3.4 trains nothing; its cells stand in the place of the converged ones.
_SMOKE = table_3_4.RECIPE.scale("smoke")
_TRAINED = replace(_SMOKE, options={**_SMOKE.options, "rows": [[["GRNN", "LeNet"], [NON_CONVERGED, CONVERGED]]]})

RECIPE = PaperRecipe(
    name="thesis/table-3-3",
    paper=THESIS,
    item="Table 3.3",
    title="what GRNN rebuilds behind a converged LeNet",
    scenario="C",
    claims=(
        Claim(
            "converged-still-leaks",
            "A converged network still gives recognisable pictures away.",
            "pictures of all three data sets, by eye",
            every(*(reaches("ssim", RECOGNISABLE, unit="SSIM", **OURS, data=column) for column in COLUMNS)),
        ),
        Claim(
            "worse-than-non-converged",
            "Pictures behind a converged network are worse than behind a non-converged one, on every data set.",
            "worse, by eye; the text blames gradients that are mostly zero",
            every(
                *(
                    above("ssim", {**OURS, "state": NON_CONVERGED, "data": column}, {**OURS, "data": column}, unit="")
                    for column in COLUMNS
                )
            ),
        ),
    ),
    numbers=tuple(
        PaperNumber("Table 3.3", column, "SSIM", None, "", metric="ssim", tags={**OURS, "data": column})
        for column in COLUMNS
    ),
    scales=(_TRAINED, *(replace(one, minutes=0.1) for one in table_3_4.RECIPE.scales[1:])),
    cells=cells,
    stand_ins=STAND_INS,
    shares=table_3_4.NAME,
    notes=("The cells are Table 3.4's, which run once.", "The thesis prints pictures and no numbers here."),
)
