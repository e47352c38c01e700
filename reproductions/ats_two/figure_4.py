"""ATS replication II, Figure 4: what the default attack and those who know the policy rebuild, side by side."""

from __future__ import annotations

from collections.abc import Iterator

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, RecipeCell, RecipeScale, above, every
from leakscope.reproduction.papers import ATS_TWO
from reproductions.ats_policies import HOME, NONE
from reproductions.ats_two import table_2

NAME = "ats_two/figure-4"
SHOWN = 2


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """The cells of Table 2 that keep their pictures, behind a policy."""
    for cell in table_2.cells(scale):
        if int(cell.tags["victim"]) < SHOWN and cell.tags["policy"] != NONE:
            yield cell


def _cheaper(scale: RecipeScale, minutes: float) -> RecipeScale:
    return RecipeScale(scale.name, minutes, steps=scale.steps, options=scale.options)


SMOKE, CPU, PAPER = table_2.RECIPE.scales
RECIPE = PaperRecipe(
    name=NAME,
    paper=ATS_TWO,
    item="Figure 4",
    title="reconstructions of the default attack and of attackers who know the policy",
    scenario="B",
    claims=(
        Claim(
            "enhanced-ssim",
            "Pictures rebuilt by the attacker who lets them shift have more of the transformed picture's structure "
            "than those of the default attack, behind all three policies.",
            "by eye: black areas and objects appear where the default attack leaves noise",
            every(
                *(
                    above(
                        "trained_ssim",
                        {"policy": row, "attack": table_2.ENHANCED},
                        {"policy": row, "attack": table_2.DEFAULT},
                        unit="SSIM",
                    )
                    for row in table_2.POLICIES
                )
            ),
        ),
    ),
    numbers=tuple(
        PaperNumber("Figure 4", row, attack, None, metric="trained_psnr", tags={"policy": row, "attack": attack})
        for row in table_2.POLICIES
        for attack in (table_2.DEFAULT, table_2.ENHANCED)
    ),
    scales=(
        SMOKE,
        # All cells are Table 2's.
        _cheaper(CPU, 0.01),
        _cheaper(PAPER, 60_000),
    ),
    cells=cells,
    shares=HOME,
    stand_ins=table_2.RECIPE.stand_ins,
    notes=(
        "The page shows the picture that the client owns beside what was rebuilt; where the attacker knows the policy, "
        "the rebuilt one is turned back.",
    ),
)
