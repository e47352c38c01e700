"""MKOR, Figure 5: single pictures of Figure 4, larger."""

from __future__ import annotations

from dataclasses import replace

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, above, every
from leakscope.reproduction.papers import MKOR
from reproductions.mkor import figure_4, table_3
from reproductions.mkor.methods import COUNTED, RAW_NLL

NAME = "mkor/figure-5"

RECIPE = PaperRecipe(
    name=NAME,
    paper=MKOR,
    item="Figure 5",
    title="single pictures of CIFAR-100 behind VGG16, for their details",
    scenario="B",
    claims=(
        Claim(
            "details",
            "MKOR's best picture of a batch shows more details than those of GI and class fishing, by SSIM.",
            "by eye; Table 3 has a maximum SSIM of 0.98 against 0.52 and 0.81",
            every(*(above("ssim_max", {"method": "MKOR"}, {"method": other}, unit="SSIM") for other in ("GI", "CF"))),
        ),
    ),
    numbers=tuple(
        PaperNumber(
            "Figure 5", method, "best picture, no number printed", None, "", metric="ssim_max", tags={"method": method}
        )
        for method in figure_4.METHODS
    ),
    # The cells are those of another recipe, which pays for them.
    scales=tuple(replace(scale, minutes=0.01) for scale in table_3.RECIPE.scales),
    cells=figure_4.cells,
    stand_ins=table_3.RECIPE.stand_ins,
    legacy_metric="psnr_target_peak",
    shares=table_3.NAME,
    notes=(RAW_NLL, COUNTED),
)
