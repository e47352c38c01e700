"""AGIC, Table V: how often images of two epochs are recognised as the same."""

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
    every,
    judge_estimate,
    network,
    untestable,
)
from leakscope.reproduction.drawing import Drawing, draw_intervals
from leakscope.reproduction.papers import AGIC
from leakscope.reproduction.statistics import mean_interval, paired_interval
from reproductions.agic.table_3 import agic_options, train_a_round

NAME = "agic/table-5"
PRINTED = {
    "neither": (0.819, 0.509),
    "pooling": (0.873, 0.547),
    "labels": (0.988, 0.672),
    "labels and pooling": (0.981, 0.705),
}
BATCHES = (1, 4)


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """One cell for a pool of images and a batch size: both epochs are rebuilt, then compared in four ways."""
    data, pool = scale.data[0], scale.options["pool"]
    victims = draw_victims(NAME, scale.name, count=scale.victims, among=scale.among, data=data, batch_size=pool)
    for victim, images in enumerate(victims):
        for size in scale.options["batches"]:
            yield call_cell(
                {"batch": size, "pool": victim},
                "reproductions.agic.epochs:match_epochs",
                reads=[{"name": data, "split": "test", "indices": images}],
                data=data,
                indices=[images],
                model=network(scale.models[0], seed=victim, trained=train_a_round(scale, victim)),
                attack=agic_options(scale, beta=1, modifier=False),
                batch_size=size,
                seed=victim,
            )


def _more(ours: str, others: str, *, batch: int):
    """Whether one way of matching recognises more images than another, pool by pool."""

    def judge(results: Results) -> ClaimVerdict:
        left, right = (results.units(name, batch=batch) for name in (ours, others))
        if len(left) < 2:
            return untestable(f"{len(left)} pools; 2 are the fewest", n=len(left))
        told = f"{fmean(left):.3g} against {fmean(right):.3g}"
        return judge_estimate(paired_interval(left, right), unit="share", note=told)

    return judge


def _larger_is_harder(results: Results) -> ClaimVerdict:
    """Share recognised at batch 1 less that at batch 4, with labels and pooling."""
    left, right = (results.units("labels and pooling", batch=batch) for batch in BATCHES)
    if min(len(left), len(right)) < 2:
        return untestable(f"{min(len(left), len(right))} pools; 2 are the fewest")
    return judge_estimate(paired_interval(left, right), unit="share")


def _figures(results: Results) -> list[Drawing]:
    drawn = []
    for place, batch in enumerate(BATCHES):
        found = {name: results.units(name, batch=batch) for name in PRINTED}
        rows = {name: mean_interval(units) for name, units in found.items() if units}
        printed = {name: values[place] for name, values in PRINTED.items() if name in rows}
        if rows:
            title = f"Share of images recognised, batch {batch}"
            drawn.append(draw_intervals(rows, title=title, label="share", name=f"batch-{batch}", printed=printed))
    return drawn


CLAIMS = (
    Claim(
        "labels-help",
        "With labels more images are recognised than without, at batch 1 and at batch 4.",
        "0.988 against 0.819 at batch 1, 0.672 against 0.509 at batch 4",
        every(*(_more("labels", "neither", batch=batch) for batch in BATCHES)),
    ),
    Claim(
        "pooling-helps-without-labels",
        "Without labels pooling recognises more images than none, at batch 1 and at batch 4.",
        "0.873 against 0.819 at batch 1, 0.547 against 0.509 at batch 4",
        every(*(_more("pooling", "neither", batch=batch) for batch in BATCHES)),
    ),
    Claim(
        "pooling-helps-with-labels",
        "With labels pooling recognises more images than none at batch 4.",
        "0.705 against 0.672; at batch 1 it does not: 0.981 against 0.988",
        _more("labels and pooling", "labels", batch=4),
    ),
    Claim(
        "batches-are-harder",
        "In batches of four fewer images are recognised than one at a time.",
        "0.981 at batch 1, 0.705 at batch 4",
        _larger_is_harder,
    ),
)

RECIPE = PaperRecipe(
    name=NAME,
    paper=AGIC,
    item="Table V",
    title="share of images recognised in a second epoch, with and without labels and pooling",
    scenario="B",
    claims=CLAIMS,
    numbers=tuple(
        PaperNumber("Table V", name, f"batch {batch}", value, "share", metric=name, tags={"batch": batch})
        for name, values in PRINTED.items()
        for batch, value in zip(BATCHES, values, strict=True)
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
            options={"schedule": "accelerated", "pre_steps": 2, "examples": 32, "pool": 4, "batches": [4]},
        ),
        RecipeScale(
            "cpu",
            8,
            victims=4,
            among=800,
            steps=40,
            models=("resnet20",),
            data=("cifar10",),
            options={"schedule": "accelerated", "pre_steps": 40, "examples": 640, "pool": 20, "batches": [1, 4]},
        ),
        RecipeScale(
            "paper",
            20_000,
            victims=1,
            among=10_000,
            steps=2_000,
            models=("resnet20-4",),
            data=("cifar100",),
            options={"schedule": "paper", "pre_steps": 2_000, "examples": 50_000, "pool": 1_000, "batches": [1, 4]},
        ),
    ),
    cells=cells,
    figures=_figures,
    stand_ins={
        "1,000 images of CIFAR-100": "four pools of 20 images of CIFAR-10, so that a label leaves several to choose "
        "from: two of a class in a pool, where the paper has ten",
        "ResNet20-4": "ResNet-20, a quarter of its width, at cpu",
    },
    notes=(
        "Labels are granted (scenario B), and two images match only where their own labels agree; the paper lets them "
        "match where the label lists of their updates overlap. A pool is one unit.",
        "Which image is behind a reconstruction is settled inside its update, by label, and by least error among "
        "images of one label.",
    ),
)
