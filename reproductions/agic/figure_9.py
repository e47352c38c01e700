"""AGIC, Figure 9: the weight of the last convolution, on untrained and trained networks, with and without modifier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

from leakscope.reproduction import (
    Claim,
    ClaimVerdict,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    above,
    attack_cell,
    judge_estimate,
    network,
    training,
    untestable,
)
from leakscope.reproduction.cells import Spec
from leakscope.reproduction.drawing import Drawing, draw_lines
from leakscope.reproduction.papers import AGIC
from leakscope.reproduction.statistics import paired_interval
from leakscope.types import LocalTraining
from reproductions.agic import table_4
from reproductions.agic.methods import EXPECTED, weigh_layers

NAME = "agic/figure-9"
_UNTRAINED, _TRAINED = {"network": "untrained"}, {"network": "trained"}
# Of both sides of a comparison: a tag that only one side names would pair with every value of it.
_FIFTY = {**_UNTRAINED, "beta": 50}
# For trained networks the paper weighs total variation a hundred times as much.
TRAINED_TV = 1e-2


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """β by β on the images of Table IV; equal weights, and β = 50 with the modifier, are its cells."""
    batches = table_4.draw(scale, "CIFAR-10", 1)
    for beta, modifier, count in scale.options["untrained"]:
        attack = weigh_layers(beta, modifier=modifier, schedule=scale.options["schedule"], steps=scale.steps)
        for victim, batch in enumerate(batches[:count]):
            base = table_4.attack_one({"data": "CIFAR-10", "victim": victim}, scale, batch, attack)
            yield replace(base, tags={**_UNTRAINED, "beta": beta, "modifier": modifier, "victim": victim})
    for beta, count in scale.options["trained"]:
        attack = weigh_layers(
            beta,
            modifier=False,
            schedule=scale.options["schedule"],
            steps=scale.options["trained_steps"],
            tv=TRAINED_TV,
        )
        for victim, batch in enumerate(batches[:count]):
            yield attack_cell(
                {**_TRAINED, "beta": beta, "modifier": False, "victim": victim},
                model=_trained(scale),
                data=scale.options["sets"]["CIFAR-10"],
                indices=[batch],
                attack=attack,
                scenario="B",
                seed=victim,
                lpips=scale.is_evidence,
                pictures=1,
                expected=EXPECTED,
            )


def _trained(scale: RecipeScale) -> Spec:
    if scale.name == "cpu":
        return network("resnet20", weights="weights/cifar10_resnet20.safetensors")
    local = LocalTraining(lr=0.1, epochs=1, batch_size=128, momentum=0.9, weight_decay=5e-4, shuffle=True)
    return network(scale.models[0], trained=training("cifar10", rounds=20, local=local, held_out=0.0))


def _weakens(results: Results) -> ClaimVerdict:
    """What β above 1 adds on the untrained network, less what it adds on the trained one, image by image."""
    gains = []
    for which, beta in ((_UNTRAINED, 50), (_TRAINED, 2)):
        ours, others = {**which, "beta": beta, "modifier": False}, {**which, "beta": 1, "modifier": False}
        gains.append(
            [one - other for one, other in zip(*results.pairs("psnr", ours, others, ended="any"), strict=True)]
        )
    count = min(map(len, gains))
    if count < 2:
        return untestable(f"{count} images were attacked on both networks; 2 are the fewest", n=count)
    # Victims come in the same order on both networks.
    return judge_estimate(paired_interval(gains[0][:count], gains[1][:count]), unit="dB", note="gain against gain")


def _at_most(share: float):
    """PSNR with the modifier is at most this share above PSNR without it, and not below."""

    def judge(results: Results) -> ClaimVerdict:
        ours, others = results.pairs("psnr", {**_FIFTY, "modifier": True}, {**_FIFTY, "modifier": False}, ended="any")
        if len(ours) < 2:
            return untestable(f"{len(ours)} pairs; 2 are the fewest", n=len(ours))
        limits = [(1 + share) * value for value in others]
        return judge_estimate(paired_interval(limits, ours), unit="dB", note=f"room below {share:.0%}")

    return judge


def _figures(results: Results) -> list[Drawing]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for which, modifier in (("untrained", False), ("untrained", True), ("trained", False)):
        chosen = results.where(network=which, modifier=modifier)
        points = [(beta, chosen.units("psnr", ended="any", beta=beta)) for beta in chosen.tags("beta")]
        name = f"{which}{', ReLU modifier' if modifier else ''}"
        lines[name] = sorted((float(beta), fmean(found)) for beta, found in points if found)
    title, across = "PSNR by the weight of the last convolution", "weight β of the last convolution"
    return [draw_lines(lines, title=title, x_label=across, y_label="PSNR (dB)", name="beta")]


CLAIMS = (
    Claim(
        "untrained",
        "On an untrained network a last convolution that weighs 50 times the first rebuilds better than equal weights.",
        "a very significant effect, read off a curve; no numbers",
        above("psnr", {**_FIFTY, "modifier": False}, {**_UNTRAINED, "beta": 1, "modifier": False}, ended="any"),
    ),
    Claim(
        "trained",
        "On a trained network a weight of two still rebuilds better than equal weights.",
        "β above 1 still improves on equal weights, read off a curve; no numbers",
        above("psnr", {**_TRAINED, "beta": 2}, {**_TRAINED, "beta": 1}, ended="any"),
    ),
    Claim(
        "weakens",
        "The best weights add more on an untrained network than on a trained one.",
        "the effect weakens with training; no numbers",
        _weakens,
    ),
    Claim(
        "modifier-helps",
        "The modifier for zeros behind ReLU rebuilds better than layer weights alone.",
        "consistently better, by up to 2.0 % of PSNR",
        above("psnr", {**_FIFTY, "modifier": True}, {**_FIFTY, "modifier": False}, ended="any"),
    ),
    Claim(
        "modifier-little",
        "The modifier adds at most two per cent of PSNR.",
        "up to 2.0 %",
        _at_most(0.02),
    ),
)


def _scale(name: str, minutes: float, **options: object) -> RecipeScale:
    """A scale of Table IV with other times and the sweep."""
    base = next(scale for scale in table_4.SCALES if scale.name == name)
    return replace(base, minutes=minutes, options={**base.options, **options})


SCALES = (
    _scale("smoke", 0.01, untrained=[[1, False, 1], [50, False, 1], [50, True, 1]], trained=[], trained_steps=2),
    _scale(
        "cpu",
        18,
        untrained=[[1, False, 5], [10, False, 2], [50, False, 3], [50, True, 5]],
        trained=[[1, 4], [2, 4], [50, 4]],
        trained_steps=600,
    ),
    _scale(
        "paper",
        600_000,
        untrained=[
            *([beta, modifier, 100] for beta in (1, 2, 5, 10, 20, 50, 100) for modifier in (False, True)),
        ],
        trained=[[beta, 100] for beta in (1, 2, 5, 10, 20, 50)],
        trained_steps=10_000,
    ),
)

RECIPE = PaperRecipe(
    name=NAME,
    paper=AGIC,
    item="Figure 9",
    title="PSNR by the weight β of the last convolution, untrained and trained, with and without the ReLU modifier",
    scenario="B",
    claims=CLAIMS,
    numbers=(
        *(
            PaperNumber(
                "Figure 9", which, f"β = {beta}, PSNR", None, tags={"network": which, "beta": beta, "modifier": False}
            )
            for which, betas in (("untrained", (1, 10, 50)), ("trained", (1, 2, 50)))
            for beta in betas
        ),
        PaperNumber(
            "Figure 9",
            "untrained",
            "β = 50 with modifier, PSNR",
            None,
            tags={**_UNTRAINED, "beta": 50, "modifier": True},
        ),
        PaperNumber(
            "section V.E",
            "ReLU modifier",
            "largest gain of PSNR",
            2.0,
            "%",
            why_not="a share of two cells: see the claim",
        ),
    ),
    scales=SCALES,
    cells=cells,
    figures=_figures,
    shares=table_4.NAME,
    stand_ins={"a trained ResNet20-4": "ResNet-20, a quarter of its width, trained on CIFAR-10 by others"},
    notes=(
        "The curves are printed without numbers. Batches of one, as in Table IV, whose cells this figure uses; the "
        "paper does not say which batches it took.",
    ),
)
