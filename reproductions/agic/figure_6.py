"""AGIC, Figure 6: images of CIFAR-10 beside what three attacks make of their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, RecipeCell, RecipeScale, above, reaches
from leakscope.reproduction.papers import AGIC
from reproductions.agic import table_4

NAME = "agic/figure-6"
_PART = {"data": "CIFAR-10", "batch": 1}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """The cells of Table IV that attack one image of CIFAR-10."""
    for cell in table_4.cells(scale):
        if _PART.items() <= cell.tags.items():
            yield cell


RECIPE = PaperRecipe(
    name=NAME,
    paper=AGIC,
    item="Figure 6",
    title="images rebuilt from the gradient of one image behind an untrained ResNet20-4",
    scenario="B",
    claims=(
        Claim(
            "more-alike",
            "AGIC's images look more like the originals than those of Inverting Gradients.",
            "by eye; Table IV has SSIM 0.963 against 0.753",
            above("ssim", {"method": "AGIC"}, {"method": "InvG"}, unit="SSIM", ended="any"),
        ),
        Claim(
            "almost-identical",
            "AGIC's images are almost identical to the originals: an SSIM of 0.9.",
            "visually almost identical to the ground truth; Table IV has SSIM 0.963",
            reaches("ssim", 0.9, unit="SSIM", ended="any", method="AGIC"),
        ),
    ),
    numbers=tuple(
        PaperNumber("Figure 6", method, "image, no number printed", None, tags={**_PART, "method": method})
        for method in table_4.METHODS
    ),
    # The cells are those of another recipe, which pays for them.
    scales=tuple(replace(scale, minutes=0.01) for scale in table_4.SCALES),
    cells=cells,
    shares=table_4.NAME,
    notes=("The images of Table IV's cells, side by side.",),
)
