"""Ren's thesis, Table 3.8: true pictures beside GRNN's and DLG's, by batch size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, RecipeCell, RecipeScale
from leakscope.reproduction.papers import THESIS
from reproductions.thesis import table_3_6
from reproductions.thesis.table_3_6 import BATCHES
from reproductions.thesis.verdicts import above_by_unit


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """The cells behind LeNet on photographs, of Table 3.6."""
    for cell in table_3_6.cells(scale):
        if cell.tags["model"] == "LeNet" and cell.tags["data"] == "CIFAR-100":
            yield cell


RECIPE = PaperRecipe(
    name="thesis/table-3-8",
    paper=THESIS,
    item="Table 3.8",
    title="true pictures beside GRNN's and DLG's, by batch size",
    scenario="C",
    claims=(
        Claim(
            "grnn-nearer-over-all-batches",
            "Over all batch sizes GRNN's pictures are nearer to the truth than DLG's.",
            "by eye",
            above_by_unit("psnr", {"method": "GRNN"}, {"method": "DLG"}, per=("victim",)),
        ),
        Claim(
            "structure-as-well",
            "Over all batch sizes GRNN's pictures have more of the truth's structure than DLG's.",
            "by eye",
            above_by_unit("ssim", {"method": "GRNN"}, {"method": "DLG"}, per=("victim",), unit="SSIM"),
        ),
    ),
    numbers=(
        *(
            PaperNumber("Table 3.8", method, f"batch {size}", None, tags={"method": method, "batch": size})
            for method in ("GRNN", "DLG")
            for size in BATCHES
        ),
        *(PaperNumber("Table 3.8", method, "all", None, tags={"method": method}) for method in ("GRNN", "DLG")),
    ),
    scales=tuple(replace(one, minutes=min(one.minutes, 0.1)) for one in table_3_6.RECIPE.scales),
    cells=cells,
    shares=table_3_6.NAME,
    notes=(
        "The cells are Table 3.6's, which run once.",
        "The thesis prints pictures and no numbers here.",
        "Batches of one victim are nested, so that a victim counts once.",
    ),
)
