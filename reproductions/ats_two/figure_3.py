"""ATS replication II, Figure 3: pictures, what is trained on instead, and what an attack rebuilds."""

from __future__ import annotations

from collections.abc import Iterator

from leakscope.reproduction import (
    Claim,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    above,
    call_cell,
    draw_victims,
)
from leakscope.reproduction.papers import ATS_TWO
from reproductions.ats_one import table_1
from reproductions.ats_policies import (
    HOME,
    NONE,
    SEARCH,
    policy_cells,
    psnr_above,
    psnr_metric,
    transforms_spec,
)

NAME = "ats_two/figure-3"
ROWS = (NONE, "Hybrid")
SHOWN = 2


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """The cells of Table 1 that keep pictures; and the pictures that the hybrid made of the same victims."""
    (setting,) = scale.options["blocks"]
    policies = {row: numbers for row, numbers in table_1.policies_of(setting).items() if row in ROWS}
    for cell in policy_cells(scale, setting, policies):
        if int(cell.tags["victim"]) < SHOWN:
            yield cell
    victims = draw_victims(HOME, scale.name, count=setting["victims"], among=setting["among"], data=setting["name"])
    for victim, batch in enumerate(victims[:SHOWN]):
        yield call_cell(
            {"shown": "original and trained on", "policy": "Hybrid", "victim": victim},
            "reproductions.ats_two.policy_scores:trained_pictures",
            reads=[{"name": setting["name"], "split": "test", "indices": batch}],
            data=setting["name"],
            indices=[batch],
            defence=transforms_spec(policies["Hybrid"]),
            seed=victim,
        )


SMOKE, CPU, PAPER = table_1.SCALES
RECIPE = PaperRecipe(
    name=NAME,
    paper=ATS_TWO,
    item="Figure 3",
    title="original, transformed and rebuilt pictures without a policy and with the hybrid",
    scenario="B",
    claims=(
        Claim(
            "hybrid-looks-worse",
            "What is rebuilt behind the hybrid policy is further from what was trained on than without a policy.",
            "by eye; 7.48 against 9.94 dB in Table 1",
            psnr_above({"policy": NONE}, {"policy": "Hybrid"}),
        ),
        Claim(
            "structure",
            "It has less of the structure of the picture that the client owns: SSIM is lower.",
            "by eye",
            above("ssim", {"policy": NONE}, {"policy": "Hybrid"}, unit="SSIM"),
        ),
    ),
    numbers=tuple(
        PaperNumber("Figure 3", row, "PSNR", None, metric=psnr_metric(row), tags={"policy": row}) for row in ROWS
    ),
    scales=(
        RecipeScale("smoke", 0.01, steps=2, options={"attack": SEARCH, "blocks": [table_1.SMOKE_BLOCK]}),
        # The attacks are those of ats_one/table-1.
        RecipeScale("cpu", 0.1, steps=CPU.steps, options={**CPU.options, "blocks": [table_1.CPU_CIFAR]}),
        RecipeScale("paper", 14_000, steps=PAPER.steps, options={**PAPER.options, "blocks": [table_1.PAPER_BLOCKS[0]]}),
    ),
    cells=cells,
    shares=HOME,
    stand_ins=table_1.STAND_INS,
    notes=("Pairs that are called `original and trained on` show the picture and what the client trained on instead.",),
)
