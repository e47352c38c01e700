"""ATS replication I, Figure 2: does the privacy score predict what an attack rebuilds?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

from leakscope.reproduction import (
    CellResult,
    Claim,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    call_cell,
    correlates,
)
from leakscope.reproduction.drawing import Drawing, draw_points
from leakscope.reproduction.papers import ATS_ONE
from reproductions.ats_two import figure_2

NAME = "ats_one/figure-2"
SHARED = figure_2.NAME
# S_pri as the papers write it, beside the released code's: the cosine of the whole gradient, summed from the left.
WRITTEN = "as written"


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """The other replication's policies and more of the same draw; S_pri once more by the papers' formula."""
    both = list(figure_2.cells(scale))
    yield from both
    for cell in both:
        settings: Any = cell.spec["settings"]
        reads: Any = cell.spec["reads_data"]
        yield call_cell(
            {"policy": cell.tags["policy"], "formula": WRITTEN},
            "reproductions.ats_two.policy_scores:privacy",
            reads=reads,
            policies=[settings["policy"]],
            variant="paper",
            data=settings["data"],
            indices=settings["indices"],
            model=settings["model"],
        )


def _score(results: Results) -> list[float]:
    return [fmean(one.units("privacy")) for one in _attacked(results)]


def _psnr(results: Results) -> list[float]:
    return [fmean(one.units("psnr")) for one in _attacked(results)]


def _written(results: Results) -> list[float]:
    scores = {one.cell.tags["policy"]: one for one in results.where(formula=WRITTEN)}
    return [fmean(scores[one.cell.tags["policy"]].units("privacy")) for one in _attacked(results)]


def _attacked(results: Results) -> list[CellResult]:
    """Cells with a PSNR whose policy has both scores."""
    scored = {one.cell.tags["policy"] for one in results.where(formula=WRITTEN) if one.is_ok}
    return [one for one in results if one.is_ok and one.units("psnr") and one.cell.tags["policy"] in scored]


def _points(first: Callable[[Results], list[float]], results: Results) -> list[tuple[float, float]]:
    return list(zip(first(results), _psnr(results), strict=True))


def _figures(results: Results) -> list[Drawing]:
    groups = {"as released": _points(_score, results), WRITTEN: _points(_written, results)}
    labels = {"x_label": "privacy score S_pri", "y_label": "PSNR (dB)"}
    return [draw_points(groups, title="Privacy score and PSNR, one point a policy", name="scatter", **labels)]


REPORTED = "Gao et al.: Pearson's r = 0.697; this replication: r = 0.123"
(SMOKE, CPU, PAPER) = figure_2.RECIPE.scales
RECIPE = PaperRecipe(
    name=NAME,
    paper=ATS_ONE,
    item="Figure 2",
    title="S_pri against PSNR over random policies",
    scenario="B",
    claims=(
        Claim(
            "correlated",
            "The privacy score of the released code is positively correlated with what an attack rebuilds.",
            REPORTED,
            correlates(_score, _psnr),
        ),
        Claim(
            "correlated-as-written",
            "The privacy score of the papers' formula is positively correlated with what an attack rebuilds.",
            REPORTED,
            correlates(_written, _psnr),
        ),
        Claim(
            "strongly",
            "The correlation is at least as strong as half of that of the original: r above 0.35.",
            REPORTED,
            correlates(_score, _psnr, least=0.35),
        ),
    ),
    numbers=(
        PaperNumber("Figure 2", "random policies", "PSNR of the attack", None, "dB", tags={}),
        PaperNumber(
            "Figure 2", "random policies", "S_pri, as written", None, "", metric="privacy", tags={"formula": WRITTEN}
        ),
        PaperNumber("Experiment 10", "Gao et al.", "Pearson's r", 0.697, "", why_not="the first claim is about it"),
        PaperNumber("Experiment 10", "replication", "Pearson's r", 0.123, "", why_not="the first claim is about it"),
    ),
    scales=(
        SMOKE,
        # 20 policies beyond the other replication's 40: 40 attacks of 12 s; S_pri of 120 pictures by the other formula.
        RecipeScale(
            "cpu",
            26,
            victims=CPU.victims,
            among=CPU.among,
            steps=CPU.steps,
            models=CPU.models,
            data=CPU.data,
            options={**CPU.options, "policies": 60},
        ),
        PAPER,
    ),
    cells=cells,
    figures=_figures,
    shares=SHARED,
    stand_ins=figure_2.RECIPE.stand_ins,
    notes=(
        "PSNR is against the transformed picture, as in the papers; pictures, coins and network are the same for all "
        "policies.",
        "The first 40 policies are those of ats_two/figure-2; their cells run once.",
        "The authors' script attacks one picture for each policy; here it is two.",
    ),
)
