"""AGIC, Figure 10: one image of CIFAR-10, rebuilt with more and more weight on the last convolution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, RecipeCell, RecipeScale, above
from leakscope.reproduction.papers import AGIC
from reproductions.agic import figure_9, table_4

NAME = "agic/figure-10"
_PLAIN = {"network": "untrained", "modifier": False}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """The cells of Figure 9 on untrained networks, without the modifier."""
    for cell in figure_9.cells(scale):
        if _PLAIN.items() <= cell.tags.items():
            yield cell


RECIPE = PaperRecipe(
    name=NAME,
    paper=AGIC,
    item="Figure 10",
    title="images rebuilt from an untrained ResNet20-4 with rising weight of the last convolution",
    scenario="B",
    claims=(
        Claim(
            "more-alike-with-weight",
            "Images look more like the originals with a weight of 50 than with equal weights.",
            "one image of a horse with β from 1 to 20, by eye; no numbers",
            above("ssim", {"beta": 50}, {"beta": 1}, unit="SSIM", ended="any"),
        ),
        Claim(
            "between",
            "A weight of 10 lies between: images look more like the originals than with equal weights.",
            "quality rises with β, by eye",
            above("ssim", {"beta": 10}, {"beta": 1}, unit="SSIM", ended="any"),
        ),
    ),
    numbers=tuple(
        PaperNumber("Figure 10", f"β = {beta}", "image, no number printed", None, tags={**_PLAIN, "beta": beta})
        for beta in (1, 10, 50)
    ),
    # The cells are those of another recipe, which pays for them.
    scales=tuple(replace(scale, minutes=0.01) for scale in figure_9.SCALES),
    cells=cells,
    shares=table_4.NAME,
    notes=("The images of Figure 9's cells, side by side; the paper shows β up to 20.",),
)
