"""ATS replication II, Figure 7: training curves of the networks of Table 1."""

from __future__ import annotations

from collections.abc import Iterator

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, RecipeCell, RecipeScale, Results, above
from leakscope.reproduction.drawing import Drawing
from leakscope.reproduction.papers import ATS_TWO
from reproductions.ats_one import figure_4
from reproductions.ats_policies import HOME, NONE
from reproductions.ats_two import table_1

NAME = "ats_two/figure-7"
ROWS = figure_4.ROWS


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """The trainings of both replications' Table 1 on CIFAR-100."""
    yield from figure_4.cells(scale)


def _figures(results: Results) -> list[Drawing]:
    return figure_4.draw_curves(results, ROWS)


def _within(policy: str) -> Claim:
    """The gap at the end is at most that of Table 1."""
    ours, none = (table_1.PRINTED["CIFAR-100"][row][0][2] for row in (policy, NONE))
    gap = none - ours
    return Claim(
        f"gap-of-{policy.lower()}",
        f"Trained to the end, accuracy with {policy} is at most {gap:.2f} points below that without a policy.",
        f"{ours} % against {none} % in Table 1",
        above("accuracy", {"policy": policy}, {"policy": NONE}, least=-gap / 100, unit="share"),
    )


SMOKE, CPU, PAPER = figure_4.RECIPE.scales
RECIPE = PaperRecipe(
    name=NAME,
    paper=ATS_TWO,
    item="Figure 7",
    title="accuracy and loss over the training with 3-1-7, 43-18-18, the hybrid and none",
    scenario="no server attacks: a training",
    claims=tuple(_within(policy) for policy in ROWS[1:]),
    numbers=tuple(
        PaperNumber(
            "Figure 7",
            row,
            "accuracy at the end",
            table_1.PRINTED["CIFAR-100"][row][0][2],
            "%",
            metric="accuracy",
            tags={"policy": row},
            factor=100,
        )
        for row in ROWS
    ),
    scales=(
        SMOKE,
        # All cells are those of ats_one/table-1.
        CPU,
        RecipeScale("paper", 90_000, options={"accuracies": table_1.PAPER_BLOCKS[:1]}),
    ),
    cells=cells,
    figures=_figures,
    shares=HOME,
    stand_ins=figure_4.RECIPE.stand_ins,
    notes=figure_4.RECIPE.notes,
)
