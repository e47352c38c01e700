"""ATS replication I, Figure 5: in which layers the attacker's gradient differs from the observed one."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

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
from leakscope.reproduction.drawing import Drawing, draw_lines
from leakscope.reproduction.papers import ATS_ONE
from leakscope.reproduction.statistics import paired_interval
from reproductions.ats_one.table_1 import CPU_CIFAR, PAPER_BLOCKS, SMOKE_BLOCK
from reproductions.ats_policies import (
    HOME,
    NONE,
    NUMBERS,
    SEARCH,
    attack_of,
    policy_network,
)

NAME = "ats_one/figure-5"
POLICIES = {NONE: NUMBERS[NONE], "Random": NUMBERS["Random"], "3-1-7": "3-1-7"}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """The same pictures with every policy; the network is trained without one, or with the same."""
    (setting,) = scale.options["blocks"]
    pictures = draw_victims(NAME, scale.name, count=setting["victims"], among=setting["among"], data=setting["name"])
    for shown, numbers in POLICIES.items():
        for victim, batch in enumerate(pictures):
            yield call_cell(
                {"policy": shown, "victim": victim},
                "reproductions.ats_one.layers:layer_gradsim",
                reads=[{"name": setting["name"], "split": "test", "indices": batch}],
                policy=numbers,
                data=setting["name"],
                indices=[batch],
                model=policy_network(setting, numbers if scale.options["trained_with_policy"] else NUMBERS[NONE]),
                attack=attack_of(scale),
                seed=victim,
            )


def _deep_above_shallow(results: Results) -> ClaimVerdict:
    ours = results.where(policy="3-1-7")
    deep, shallow = ours.units("deep"), ours.units("shallow")
    if len(deep) < 2:
        return untestable(f"{len(deep)} pictures; 2 are the fewest", n=len(deep))
    told = f"{fmean(deep):.3g} in the last third of the layers, {fmean(shallow):.3g} in the first"
    return judge_estimate(paired_interval(deep, shallow), unit="GradSim", note=told)


def _more_in_shallow(results: Results) -> ClaimVerdict:
    """What the policy takes away in the first third of the layers, beyond what it does in the last."""
    taken = {part: results.pairs(part, {"policy": NONE}, {"policy": "3-1-7"}) for part in ("shallow", "deep")}
    drops = [[one - other for one, other in zip(*pair, strict=True)] for pair in taken.values()]
    if len(drops[0]) < 2:
        return untestable(f"{len(drops[0])} pairs; 2 are the fewest", n=len(drops[0]))
    return judge_estimate(paired_interval(*drops), unit="GradSim")


def _figures(results: Results) -> list[Drawing]:
    lines = {}
    for policy in POLICIES:
        rows = [picture for one in results.where(policy=policy) for picture in one.values.get("layers", [])]
        lines[policy] = [(float(layer + 1), fmean(row)) for layer, row in enumerate(zip(*rows, strict=True))]
    x_label, y_label = "layer, the first one next to the picture", "GradSim at the end of the attack"
    return [draw_lines(lines, title="GradSim by layer", name="layers", x_label=x_label, y_label=y_label)]


RECIPE = PaperRecipe(
    name=NAME,
    paper=ATS_ONE,
    item="Figure 5",
    title="gradient similarity by layer with the searched policy, a random one and none",
    scenario="B",
    claims=(
        Claim(
            "deep-above-shallow",
            "With the policy 3-1-7 the attacker's gradient resembles the observed one more in the last third of the "
            "layers than in the first.",
            "gradients differ clearly in shallow layers and are very alike in deep ones; no numbers",
            _deep_above_shallow,
        ),
        Claim(
            "policy-acts-on-shallow",
            "The policy lowers the similarity more in the first third of the layers than in the last.",
            "by eye: shallow layers show the difference between policies, deep ones do not",
            _more_in_shallow,
        ),
    ),
    numbers=tuple(
        PaperNumber("Figure 5", policy, f"GradSim, {part} layers", None, "", metric=part, tags={"policy": policy})
        for policy in POLICIES
        for part in ("shallow", "deep")
    ),
    scales=(
        RecipeScale(
            "smoke",
            0.01,
            steps=2,
            options={"attack": SEARCH, "blocks": [SMOKE_BLOCK], "trained_with_policy": False},
        ),
        # 9 attacks of 36 s; the network is Table 1's.
        RecipeScale(
            "cpu",
            5.5,
            steps=200,
            options={
                "attack": SEARCH,
                "blocks": [CPU_CIFAR | {"victims": 3}],
                "trained_with_policy": False,
            },
        ),
        RecipeScale(
            "paper",
            33_000,
            steps=4_800,
            options={"attack": "adam-cosine", "blocks": [PAPER_BLOCKS[0]], "trained_with_policy": True},
        ),
    ),
    cells=cells,
    figures=_figures,
    shares=HOME,
    stand_ins={
        "networks trained with each policy": "one network, trained for two epochs without a policy: what differs is "
        "the attacked picture alone",
        "Adam + cosine, 4,800 steps": "inverting-gradients, 200 steps",
    },
    notes=(
        "Layers are the tensors with more than one dimension: convolutions, shortcuts among them, and the last linear "
        "layer. The paper draws curves over the attack; here it is its end.",
    ),
)
