"""ATS replication II, Figure 5: the privacy score of all fifty operations by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from statistics import fmean, median

from leakscope.operations.library import LIBRARY, first_equal
from leakscope.reproduction import (
    Claim,
    ClaimVerdict,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    call_cell,
    draw_victims,
    judge_estimate,
    untestable,
)
from leakscope.reproduction.drawing import Drawing
from leakscope.reproduction.papers import ATS_TWO
from leakscope.reproduction.statistics import mean_interval
from reproductions.ats_one.figure_6 import CPU_RESNET, PAPER_BLOCKS, draw_operations
from reproductions.ats_one.table_1 import SMOKE_BLOCK
from reproductions.ats_policies import NUMBERS, policy_network
from reproductions.rankings import best_of, operation_scores, overlap_of_best

NAME = "ats_two/figure-5"
# As published, the best first; 39 leaves pictures alone, and 43 does what 24, 42 and 48 do.
TOP_TEN = (3, 15, 1, 26, 12, 43, 25, 13, 4, 39)
SHIFT = (24, 42, 43, 48)


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Every number with noise and coins of its own, as in a search, on the same pictures."""
    (setting,) = scale.options["blocks"]
    pictures = draw_victims(NAME, scale.name, count=setting["victims"], among=setting["among"], data=setting["name"])
    places = [place for one in pictures for place in one]
    for number in scale.options.get("operations", range(len(LIBRARY))):
        yield call_cell(
            {"operation": number},
            "reproductions.ats_two.policy_scores:privacy",
            reads=[{"name": setting["name"], "split": "test", "indices": places}],
            policies=[str(number)],
            seeds=[number],
            data=setting["name"],
            indices=pictures,
            model=policy_network(setting, NUMBERS["None"]),
        )


def by_function(scores: dict[int, list[float]]) -> dict[int, list[float]]:
    """Scores of different operations: those that do the same count once, picture by picture their mean."""
    found: dict[int, list[list[float]]] = {}
    for number, values in scores.items():
        found.setdefault(first_equal(number), []).append(values)
    return {number: [fmean(column) for column in zip(*rows, strict=True)] for number, rows in found.items()}


def _overlap(results: Results) -> ClaimVerdict:
    scores = by_function(operation_scores(results))
    if len(scores) < 11 or len(next(iter(scores.values()))) < 2:
        return untestable(f"{len(scores)} different operations; a ranking of ten needs more, and two pictures")
    known = {first_equal(number) for number in TOP_TEN}
    told = f"best: {', '.join(map(str, best_of(scores, 10)))}"
    return judge_estimate(overlap_of_best(scores, known, best=10), least=6.5, unit="of 10 best", note=told)


def gaps(scores: dict[int, list[float]]) -> tuple[list[float], float]:
    """|difference| of every two operations that do the same; and from the tenth best to the median operation."""
    means = {number: fmean(values) for number, values in scores.items()}
    equal = [
        abs(means[one] - means[other])
        for one, other in combinations(means, 2)
        if first_equal(one) == first_equal(other)
    ]
    ranked = sorted(fmean(values) for values in by_function(scores).values())
    return equal, median(ranked) - ranked[min(9, len(ranked) - 1)]


def _equal_alike(results: Results) -> ClaimVerdict:
    equal, room = gaps(operation_scores(results))
    if len(equal) < 2:
        return untestable(f"{len(equal)} pairs of equal operations; 2 are the fewest", n=len(equal))
    told = f"pairs of equal operations differ by {fmean(equal):.2g}; from the tenth best to the median it is {room:.2g}"
    return judge_estimate(mean_interval([room - gap for gap in equal]), unit="S_pri", note=told)


def _figures(results: Results) -> list[Drawing]:
    return draw_operations(results, TOP_TEN, title="S_pri by operation", name="operations")


RECIPE = PaperRecipe(
    name=NAME,
    paper=ATS_TWO,
    item="Figure 5",
    title="S_pri of the fifty operations, one at a time",
    scenario="no attack: a score that an attacker's gradients would have",
    claims=(
        Claim(
            "ten-best-overlap",
            "At least seven of the ten operations published as the best are among our ten best different ones.",
            "the ten best mostly overlap with the original's",
            _overlap,
        ),
        Claim(
            "ranking-is-not-noise",
            "Numbers that stand for the same operation differ in score by less than the tenth best differs from the "
            "median.",
            "43 is among the ten best and the equal 24, 42 and 48 are not; so is 39, which does nothing",
            _equal_alike,
        ),
    ),
    numbers=tuple(
        PaperNumber("Figure 5", f"operation {number}", "S_pri", None, "", metric="privacy", tags={"operation": number})
        for number in dict.fromkeys((*TOP_TEN, *SHIFT, 28))
    ),
    scales=(
        RecipeScale(
            "smoke", 0.01, options={"blocks": [SMOKE_BLOCK | {"victims": 2}], "operations": [0, 3, 24, 39, 43, 48]}
        ),
        # 50 operations on 6 pictures of 1 s, a network of 46 s.
        RecipeScale("cpu", 6, options={"blocks": [CPU_RESNET]}),
        RecipeScale("paper", 100, options={"blocks": PAPER_BLOCKS[:1]}),
    ),
    cells=cells,
    figures=_figures,
    stand_ins={
        "a network trained for 50 epochs on a tenth": "two epochs on the 486 CIFAR-100 pictures at hand",
        "100 pictures": "6 pictures",
    },
    notes=(
        "Noise and coins are drawn for each number by itself, so that equal operations show how much of a ranking is "
        "chance. S_pri is that of the released code.",
    ),
)
