"""Ren's thesis, Table 3.14: true and rebuilt faces, and whom a recogniser takes them for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, RecipeCell, RecipeScale, every, reaches
from leakscope.reproduction.papers import THESIS
from reproductions.thesis import table_3_15
from reproductions.thesis.setting import RECOGNISABLE
from reproductions.thesis.table_3_15 import RECOGNISERS
from reproductions.thesis.verdicts import rises

OURS: dict[str, Any] = {"method": "GRNN", "batch": 1}
# Confidences of the three likeliest people in per cent, for the people 42, 26 and 69: true face, rebuilt face.
PRINTED = {
    42: ((40.70, 10.84, 4.08), (11.89, 7.58, 7.46)),
    26: ((90.34, 4.04, 1.75), (73.10, 7.88, 3.91)),
    69: ((66.10, 5.02, 4.71), (59.52, 7.96, 3.29)),
}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """GRNN's cells of single faces, of Table 3.15."""
    for cell in table_3_15.cells(scale):
        if cell.tags["method"] == "GRNN" and cell.tags["batch"] == 1:
            yield cell


RECIPE = PaperRecipe(
    name="thesis/table-3-14",
    paper=THESIS,
    item="Table 3.14",
    title="true and rebuilt faces, and whom a recogniser takes them for",
    scenario="C",
    claims=(
        Claim(
            "alike-but-taken-for-others",
            "Recognisers know people in rebuilt faces less often than in true faces.",
            "examples: a rebuilt face may look alike and be given another name",
            every(*(rises(f"{key}_top1", f"{key}_true_top1", unit="share", **OURS) for key in RECOGNISERS)),
        ),
        Claim(
            "less-sure",
            "Recognisers are less sure of rebuilt faces than of true ones.",
            "40.70 against 11.89, 90.34 against 73.10, 66.10 against 59.52 %",
            every(
                *(
                    rises(f"{key}_confidence", f"{key}_true_confidence", unit="probability", **OURS)
                    for key in RECOGNISERS
                )
            ),
        ),
        Claim(
            "faces-look-alike",
            "Rebuilt single faces are recognisable by SSIM.",
            "almost identical, by eye",
            reaches("ssim", RECOGNISABLE, unit="SSIM", ended="any", **OURS),
        ),
    ),
    numbers=tuple(
        PaperNumber(
            "Table 3.14",
            f"person {person}, {kind} face",
            f"confidence {rank + 1}",
            value,
            "%",
            metric=f"res18_{key}confidence",
            factor=100,
            tags=OURS if rank == 0 else None,
            why_not="" if rank == 0 else "only the likeliest person's confidence is kept",
        )
        for person, rows in PRINTED.items()
        for (kind, key), values in zip((("true", "true_"), ("rebuilt", "")), rows, strict=True)
        for rank, value in enumerate(values)
    ),
    scales=tuple(replace(one, minutes=min(one.minutes, 0.1)) for one in table_3_15.RECIPE.scales),
    cells=cells,
    stand_ins=table_3_15.RECIPE.stand_ins,
    shares=table_3_15.NAME,
    notes=(
        "The cells are Table 3.15's, which run once.",
        "The thesis shows three people that it chose; beside each number stands our mean over all attacked faces.",
    ),
)
