"""ATS replication I, Figure 6c (extension 2): are the best operations of another data set the same?"""

from __future__ import annotations

from collections.abc import Iterator

from leakscope.reproduction import (
    Claim,
    ClaimVerdict,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    judge_estimate,
    untestable,
)
from leakscope.reproduction.drawing import Drawing
from leakscope.reproduction.papers import ATS_ONE
from reproductions.ats_one import figure_6
from reproductions.ats_one.table_1 import SMOKE_BLOCK
from reproductions.ats_one.table_6 import CPU_BLOCK, PAPER_BLOCK
from reproductions.rankings import best_of, operation_scores, overlap_of_rankings

NAME = "ats_one/figure-6c"
OTHER = "Rescaled ImageNet"


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """CIFAR-100's cells on ResNet20-4 are those of Figure 6a."""
    first, other = scale.options["blocks"]
    yield from figure_6.operation_cells(scale, first, recipe=figure_6.NAME)
    yield from figure_6.operation_cells(scale, other, recipe=NAME)


def _three_in_common(results: Results) -> ClaimVerdict:
    ours, others = (operation_scores(results.where(data=data)) for data in (OTHER, "CIFAR-100"))
    if min(len(ours), len(others)) < 5:
        return untestable("a ranking needs five operations")
    told = f"best: {', '.join(map(str, best_of(ours, 5)))}; of CIFAR-100: {', '.join(map(str, best_of(others, 5)))}"
    return judge_estimate(overlap_of_rankings(ours, others, best=5), least=2.5, unit="of 5 best", note=told)


def _figures(results: Results) -> list[Drawing]:
    return figure_6.draw_operations(
        results, figure_6.PUBLISHED, title=f"S_pri by operation, {OTHER}", name="operations", data=OTHER
    )


RECIPE = PaperRecipe(
    name=NAME,
    paper=ATS_ONE,
    item="Figure 6c",
    title="S_pri of the library's operations on Rescaled ImageNet",
    scenario="no attack: a score that an attacker's gradients would have",
    claims=(
        Claim(
            "three-of-our-five",
            "At least three of the five best operations there are among our five best of CIFAR-100.",
            "three overlap",
            _three_in_common,
        ),
        Claim(
            "three-of-the-published-five",
            "At least three of them are among the five that were published for CIFAR-100.",
            "three overlap",
            figure_6.among_best(figure_6.PUBLISHED, best=5, least=3, data=OTHER),
        ),
    ),
    numbers=tuple(
        PaperNumber("Figure 6c", text, "S_pri", None, "", metric="privacy", tags={"operation": number, "data": OTHER})
        for number, text in figure_6.NAMES.items()
    ),
    scales=(
        RecipeScale(
            "smoke",
            0.01,
            options={
                "blocks": [SMOKE_BLOCK | {"victims": 2}, SMOKE_BLOCK | {"victims": 2, "data": OTHER}],
                "operations": [0, 1, 3, 15, 26],
            },
        ),
        # 28 operations on 6 pictures of 1 s, a network of 46 s; CIFAR-100's cells belong to Figure 6a.
        RecipeScale("cpu", 4, options={"blocks": [figure_6.CPU_RESNET, CPU_BLOCK]}),
        RecipeScale(
            "paper",
            600,
            options={
                "blocks": [
                    figure_6.PAPER_BLOCKS[0],
                    PAPER_BLOCK | {"victims": 100, "examples": 10_000, "epochs": 50, "decay_every": 978},
                ]
            },
        ),
    ),
    cells=cells,
    figures=_figures,
    shares=figure_6.NAME,
    stand_ins={
        "Rescaled ImageNet": "Tiny ImageNet at 32 × 32; the network learned from CIFAR-100 for two epochs",
        "a network trained for 50 epochs on a tenth": "two epochs on the 486 CIFAR-100 pictures at hand",
    },
    notes=("n counts pictures of Rescaled ImageNet; CIFAR-100's ranking is taken as it is.",),
)
