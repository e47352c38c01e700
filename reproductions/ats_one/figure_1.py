"""ATS replication I, Figure 1: how far the attacker's gradient gets along the attack, with and without a policy."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from leakscope.reproduction import (
    CellResult,
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
from leakscope.reproduction.drawing import Drawing, draw_lines
from leakscope.reproduction.papers import ATS_ONE
from leakscope.reproduction.statistics import paired_interval
from reproductions.ats_one.table_1 import CPU_CIFAR, PAPER_BLOCKS, SMOKE_BLOCK, STAND_INS
from reproductions.ats_policies import (
    HOME,
    NONE,
    NUMBERS,
    SEARCH,
    policy_cells,
)

NAME = "ats_one/figure-1"
POLICY = "3-1-7"


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Both rows on the network that was trained without a policy; the first row's cells are those of Table 1."""
    (setting,) = scale.options["blocks"]
    policies = {NONE: NUMBERS[NONE], POLICY: POLICY}
    yield from policy_cells(scale, setting, policies, trained_with=NUMBERS[NONE])


def similarities(one: CellResult) -> list[float]:
    """GradSim along an attack on the cosine: 1 − distance."""
    return [1 - float(value) for value in one.values.get("history", []) if value is not None]


def _last(path: list[float]) -> float:
    return path[-1]


def _paths(results: Results, policy: str) -> dict[object, list[float]]:
    """By victim, of the cells that ended well; both rows have to."""
    found = {one.cell.tags["victim"]: similarities(one) for one in results.where(policy=policy) if one.is_ok}
    return {victim: path for victim, path in found.items() if path}


def _lower(measure):
    def judge(results: Results) -> ClaimVerdict:
        plain, hidden = (_paths(results, policy) for policy in (NONE, POLICY))
        both = [victim for victim in plain if victim in hidden]
        if len(both) < 2:
            return untestable(f"{len(both)} pairs ended well; 2 are the fewest", n=len(both))
        values = ([measure(paths[victim]) for victim in both] for paths in (plain, hidden))
        return judge_estimate(paired_interval(*values), unit="GradSim")

    return judge


def _figures(results: Results) -> list[Drawing]:
    lines = {}
    for policy in (NONE, POLICY):
        paths = [similarities(one) for one in results.where(policy=policy) if similarities(one)]
        steps = min((len(path) for path in paths), default=0)
        lines[policy] = [(float(step), fmean(path[step] for path in paths)) for step in range(steps)]
    x_label, y_label = "points of the attack, evenly spaced", "GradSim, mean over pictures"
    return [draw_lines(lines, title="GradSim along the attack", name="gradsim", x_label=x_label, y_label=y_label)]


RECIPE = PaperRecipe(
    name=NAME,
    paper=ATS_ONE,
    item="Figure 1",
    title="GradSim along a reconstruction attack with and without the policy 3-1-7",
    scenario="B",
    claims=(
        Claim(
            "lower-at-the-end",
            "At the end of the attack the attacker's gradient is less like the observed one with the policy 3-1-7 than "
            "without a policy.",
            "the mean curve of 100 pictures stays lower with the policy; no numbers, and a wide band of deviations",
            _lower(_last),
        ),
        Claim(
            "lower-on-the-way",
            "On average along the attack the attacker's gradient is less like the observed one with the policy.",
            "the mean curve of 100 pictures stays lower with the policy; no numbers",
            _lower(fmean),
        ),
    ),
    numbers=tuple(
        PaperNumber("Figure 1", policy, "1 − GradSim at the end", None, "", metric="loss", tags={"policy": policy})
        for policy in (NONE, POLICY)
    ),
    scales=(
        RecipeScale("smoke", 0.01, steps=2, options={"attack": SEARCH, "blocks": [SMOKE_BLOCK]}),
        # 6 attacks of 36 s; those without a policy belong to Table 1.
        RecipeScale("cpu", 4, steps=200, options={"attack": SEARCH, "blocks": [CPU_CIFAR]}),
        RecipeScale(
            "paper",
            180_000,
            steps=4_800,
            options={
                "attack": "adam-cosine",
                "blocks": [PAPER_BLOCKS[0] | {"victims": 100, "epochs": 50, "examples": 5_000, "decay_every": 489}],
            },
        ),
    ),
    cells=cells,
    figures=_figures,
    shares=HOME,
    stand_ins={
        **{name: STAND_INS[name] for name in ("Adam + cosine, 4,800 steps",)},
        "a network trained for 50 epochs on a tenth of CIFAR-100": "two epochs on the 486 CIFAR-100 pictures at hand",
    },
    notes=(
        "GradSim is the cosine of the whole gradient, which is what the attack minimises; the released code averages "
        "the cosines of 65 tensors.",
    ),
)
