"""AGIC, Figure 8: quality and time by the number of local steps that eight images are divided into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    call_cell,
    draw_victims,
    every,
    judge_estimate,
    network,
    untestable,
)
from leakscope.reproduction.drawing import Drawing, draw_lines
from leakscope.reproduction.papers import AGIC
from leakscope.reproduction.recipe import Tag
from leakscope.reproduction.statistics import mean_interval
from leakscope.types import LocalTraining
from reproductions.agic.methods import attack_delta

NAME = "agic/figure-8"
METHODS = ("InvG", "AGIC")
LOCAL_STEPS = (1, 2, 4, 8)
_INVG, _AGIC = ({"method": name} for name in METHODS)
# "Constant" is up to a tenth: so far apart are two measurements of the same.
CONSTANT = 1.1


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """The same images of a victim, divided into 1 to 8 batches."""
    data, size = scale.data[0], scale.options["images"]
    victims = draw_victims(NAME, scale.name, count=scale.victims, among=scale.among, data=data, batch_size=size)
    for victim, batch in enumerate(victims):
        for count in scale.options["local_steps"]:
            for method in METHODS:
                yield call_cell(
                    {"method": method, "local": count, "victim": victim},
                    "reproductions.agic.local_steps:attack_timed",
                    reads=[{"name": data, "split": "test", "indices": batch}],
                    data=data,
                    indices=[batch],
                    model=network(scale.models[0], seed=victim),
                    attack=attack_delta(method, schedule=scale.options["schedule"], steps=scale.steps),
                    local=LocalTraining(lr=1e-4, steps=count, batch_size=size // count).settings(),
                    scenario="A",
                    seed=victim,
                )


def ratio_of(results: Results, ours: Mapping[str, Tag], others: Mapping[str, Tag]) -> list[float]:
    """Seconds of a step of one attack over seconds of another on the same victim."""
    left, right = results.pairs("step_seconds", ours, others, ended="any")
    return [one / other for one, other in zip(left, right, strict=True) if other > 0]


def _ratio_above(ours: Mapping[str, Tag], others: Mapping[str, Tag], least: float):
    """Whether the ratio of times is above a bar."""

    def judge(results: Results) -> ClaimVerdict:
        found = ratio_of(results, ours, others)
        if len(found) < 2:
            return untestable(f"{len(found)} pairs; 2 are the fewest", n=len(found))
        return judge_estimate(mean_interval(found), least=least, unit="times as long", note=f"bar {least:g}")

    return judge


def _constant(results: Results) -> ClaimVerdict:
    """Room below the bar: the bar less AGIC's time at eight local steps over its time at one."""
    found = [CONSTANT - ratio for ratio in ratio_of(results, {**_AGIC, "local": 8}, {**_AGIC, "local": 1})]
    if len(found) < 2:
        return untestable(f"{len(found)} pairs; 2 are the fewest", n=len(found))
    return judge_estimate(mean_interval(found), unit="times as long", note=f"room below {CONSTANT:g} times")


def _figures(results: Results) -> list[Drawing]:
    drawn = []
    for metric, label in (("psnr", "PSNR (dB)"), ("step_seconds", "seconds of a step")):
        lines = {}
        for method in METHODS:
            found = [(count, results.units(metric, ended="any", method=method, local=count)) for count in LOCAL_STEPS]
            lines[method] = [(float(count), fmean(units)) for count, units in found if units]
        title = f"{label} by local steps"
        drawn.append(
            draw_lines(
                lines, title=title, x_label="local steps", y_label=label, name=f"{metric.replace('_', '-')}-by-steps"
            )
        )
    return drawn


def _quality(count: int):
    return above("psnr", {**_AGIC, "local": count}, {**_INVG, "local": count}, ended="any")


CLAIMS = (
    Claim(
        "constant-time",
        "AGIC takes no longer for eight local steps than for one, within a tenth.",
        "a constant time, 6.7 minutes",
        _constant,
    ),
    Claim(
        "simulation-grows",
        "The simulation takes longer for eight local steps than for one.",
        "time grows with local steps, to 33.2 minutes at eight",
        _ratio_above({**_INVG, "local": 8}, {**_INVG, "local": 1}, 1.0),
    ),
    Claim(
        "faster",
        "With eight local steps AGIC is faster than the simulation.",
        "5 times: 6.7 against 33.2 minutes for 10,000 iterations",
        _ratio_above({**_INVG, "local": 8}, {**_AGIC, "local": 8}, 1.0),
    ),
    Claim(
        "five-times-faster",
        "With eight local steps AGIC is five times as fast as the simulation.",
        "5 times: 6.7 against 33.2 minutes for 10,000 iterations",
        _ratio_above({**_INVG, "local": 8}, {**_AGIC, "local": 8}, 5.0),
    ),
    Claim(
        "better",
        "AGIC rebuilds better than the simulation, whatever the number of local steps.",
        "better at all of 1, 2, 4 and 8, read off a curve",
        every(_quality(1), _quality(4), _quality(8)),
    ),
    Claim(
        "worse-with-steps",
        "Both rebuild worse from eight local steps than from one.",
        "quality of both falls with the number of steps, read off a curve",
        every(*(above("psnr", {**one, "local": 1}, {**one, "local": 8}, ended="any") for one in (_INVG, _AGIC))),
    ),
)

RECIPE = PaperRecipe(
    name=NAME,
    paper=AGIC,
    item="Figure 8",
    title="quality and time from eight images in 1 to 8 local steps",
    scenario="A",
    claims=CLAIMS,
    numbers=(
        *(
            PaperNumber(
                "section V.C",
                method,
                "8 local steps, 10,000 iterations (theirs on a GPU)",
                value,
                "minutes",
                metric="step_seconds",
                tags={"method": method, "local": 8},
                factor=10_000 / 60,
            )
            for method, value in (("AGIC", 6.7), ("InvG", 33.2))
        ),
        *(
            PaperNumber(
                "Figure 8a", method, f"{count} local steps, PSNR", None, tags={"method": method, "local": count}
            )
            for method in METHODS
            for count in LOCAL_STEPS
        ),
    ),
    scales=(
        RecipeScale(
            "smoke",
            0.01,
            victims=1,
            among=300,
            steps=2,
            models=("reproductions.networks:small_convnet",),
            data=("digits",),
            options={"schedule": "accelerated", "images": 2, "local_steps": [2]},
        ),
        RecipeScale(
            "cpu",
            10,
            victims=4,
            among=800,
            steps=30,
            models=("resnet20-4",),
            data=("cifar10",),
            options={"schedule": "accelerated", "images": 8, "local_steps": [1, 4, 8]},
        ),
        RecipeScale(
            "paper",
            1_400_000,
            victims=100,
            among=10_000,
            steps=10_000,
            models=("resnet20-4",),
            data=("cifar10",),
            options={"schedule": "paper", "images": 8, "local_steps": list(LOCAL_STEPS)},
        ),
    ),
    cells=cells,
    figures=_figures,
    notes=(
        "Time is the processor time of one step, times 10,000; the paper's is of 10,000 iterations on a GPU, which "
        "many small batches use worse than one large one. Compare ratios.",
        "The simulation is told which label was in which step (scenario A), and AGIC as well.",
    ),
)
