"""ATS replication II, section 5.2: are the best policies made of the operations that are best by themselves?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from statistics import fmean

import torch

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
from leakscope.reproduction.drawing import Drawing, draw_points
from leakscope.reproduction.papers import ATS_TWO
from leakscope.reproduction.statistics import share_interval
from leakscope.rng import generator
from reproductions.ats_two import figure_6

NAME = "ats_two/diversity"
TOP = "three of the top five"
# The best tenth of the random policies.
BEST = 0.1


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """The random policies of Figure 6; then policies of three of the top five operations."""
    yield from figure_6.cells(scale)
    yield from figure_6.score_cells(scale, {TOP: draw_top_policies(scale.options["top_policies"])})


def draw_top_policies(count: int) -> list[str]:
    """Different orders of three different operations of the top five, drawn by the name of the recipe."""
    known = ["-".join(map(str, one)) for one in permutations(figure_6.TOP_FIVE, 3)]
    order = torch.randperm(len(known), generator=generator(0, "policies", NAME)).tolist()
    return [known[place] for place in order[:count]]


def _beat_all(results: Results) -> ClaimVerdict:
    """Share of the random policies that score worse than the mean of the top five's."""
    scores = list(figure_6.scored(results, "privacy").values())
    top = results.where(chunk=TOP).units("privacy")
    if not top or len(scores) < 2:
        return untestable("no scores", n=len(scores))
    beaten = sum(value > fmean(top) for value in scores)
    told = f"mean of {len(top)} policies of the top five: {fmean(top):.3g}; of random ones {fmean(scores):.3g}"
    return judge_estimate(share_interval(beaten, len(scores)), least=0.97, unit="share", note=told)


def _best_share_operations(results: Results) -> ClaimVerdict:
    """Share of the best random policies with at least two of the ten best, above that of all random policies."""
    scores = figure_6.scored(results, "privacy")
    count = int(BEST * len(scores))
    if count < 2:
        return untestable(f"{len(scores)} policies are too few for a best tenth", n=len(scores))
    best = sorted(scores, key=lambda policy: scores[policy])[:count]
    everywhere = fmean(figure_6.holds_best(policy) for policy in scores)
    found = share_interval(sum(figure_6.holds_best(policy) for policy in best), count)
    return judge_estimate(found, least=everywhere, unit="share", note=f"of all policies: {everywhere:.2g}")


def _better_than_none(results: Results) -> ClaimVerdict:
    """Of the policies that score better than none, the share with at least two of the ten best."""
    scores, none = figure_6.scored(results, "privacy"), figure_6.of_none(results, "privacy")
    better = [] if none is None else [policy for policy, value in scores.items() if value < none]
    if len(better) < 2:
        return untestable(f"{len(better)} policies score better than none", n=len(better))
    found = share_interval(sum(figure_6.holds_best(policy) for policy in better), len(better))
    return judge_estimate(found, least=0.5, unit="share")


def _figures(results: Results) -> list[Drawing]:
    ranked = sorted(figure_6.scored(results, "privacy").values())
    top = sorted(results.where(chunk=TOP).units("privacy"))
    groups = {
        "random policies": [((place + 0.5) / len(ranked), value) for place, value in enumerate(ranked)],
        TOP: [((place + 0.5) / len(top), value) for place, value in enumerate(top)],
    }
    labels = {"x_label": "share of the policies with a lower score", "y_label": "S_pri"}
    return [draw_points(groups, title="S_pri of random policies and of the top five's", name="ranked", **labels)]


def _scale(scale: RecipeScale, minutes: float, top: int) -> RecipeScale:
    return replace(scale, minutes=minutes, options={**scale.options, "top_policies": top})


SMOKE, CPU, PAPER = figure_6.RECIPE.scales
RECIPE = PaperRecipe(
    name=NAME,
    paper=ATS_TWO,
    item="section 5.2",
    title="what the best policies are made of",
    scenario="no attack: scores that need the data and a network",
    claims=(
        Claim(
            "top-five-beat-97-percent",
            "Policies of three of the top five operations score better, on average, than 97 % of random policies.",
            "better on average than 97.3 % of all policies tested",
            _beat_all,
        ),
        Claim(
            "best-policies-share-operations",
            "Among the best tenth of random policies those with at least two of the ten best single operations are "
            "more common than among all.",
            "policies found by the search mostly consist of the operations that perform best individually",
            _best_share_operations,
        ),
        Claim(
            "better-than-none-are-of-the-best",
            "More than half of the random policies that score better than none hold at least two of the ten best.",
            "they often consist of the operations that scored best individually",
            _better_than_none,
        ),
    ),
    numbers=(
        PaperNumber(
            "section 5.2", TOP, "share of policies that score worse", 97.3, "%", why_not="the first claim is about it"
        ),
        PaperNumber("section 5.2", TOP, "mean S_pri", None, "", metric="privacy", tags={"chunk": TOP}),
    ),
    # The random policies are those of Figure 6; here 20 of the top five's.
    scales=(_scale(SMOKE, 0.01, 3), _scale(CPU, 1.5, 20), _scale(PAPER, 150, 60)),
    cells=cells,
    figures=_figures,
    shares=figure_6.NAME,
    stand_ins=figure_6.RECIPE.stand_ins,
    notes=("The top five are 3, 15, 1, 26 and 12, in the order in which the paper lists the ten best.",),
)
