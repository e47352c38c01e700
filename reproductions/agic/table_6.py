"""AGIC, Table VI: single images from the gradients of two epochs together."""

from __future__ import annotations

from collections.abc import Iterator

from leakscope.reproduction import (
    Claim,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    above,
    call_cell,
    draw_victims,
    network,
)
from leakscope.reproduction.drawing import Drawing, compare_groups
from leakscope.reproduction.papers import AGIC
from reproductions.agic.methods import print_quality
from reproductions.agic.table_3 import agic_options, train_a_round

NAME = "agic/table-6"
PRINTED = {"1": (20.379, 0.665, 0.026), "2": (19.085, 0.626, 0.022), "1,2": (21.464, 0.697, 0.016)}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """A client with a few images sends one gradient for each, in two epochs; equal layer weights."""
    data, images = scale.data[0], scale.options["images"]
    victims = draw_victims(NAME, scale.name, count=scale.victims, among=scale.among, data=data, batch_size=images)
    for victim, batch in enumerate(victims):
        for epochs in scale.options.get("epochs", PRINTED):
            yield call_cell(
                {"epochs": epochs, "victim": victim},
                "reproductions.agic.epochs:rebuild_epochs",
                reads=[{"name": data, "split": "test", "indices": batch}],
                use=epochs,
                data=data,
                indices=[batch],
                model=network(scale.models[0], seed=victim, trained=train_a_round(scale, victim)),
                attack=agic_options(scale, beta=1, modifier=False),
                batch_size=1,
                # Labels are read off the gradient, one by one.
                scenario="C",
                seed=victim,
                lpips=scale.is_evidence,
            )


def _figures(results: Results) -> list[Drawing]:
    printed = {epochs: values[0] for epochs, values in PRINTED.items()}
    title, label = "PSNR by the epochs that were seen", "PSNR (dB)"
    return [compare_groups(results, "psnr", group="epochs", title=title, label=label, name="epochs", printed=printed)]


def _together(alone: str) -> Claim:
    return Claim(
        f"both-above-{alone}",
        f"The gradients of epochs 1 and 2 together rebuild better than those of epoch {alone} alone.",
        f"21.464 against {PRINTED[alone][0]} dB",
        above("psnr", {"epochs": "1,2"}, {"epochs": alone}, ended="any"),
    )


RECIPE = PaperRecipe(
    name=NAME,
    paper=AGIC,
    item="Table VI",
    title="images from the gradients of two epochs, matched and rebuilt together, equal layer weights",
    scenario="C",
    claims=(
        _together("1"),
        _together("2"),
        Claim(
            "earlier-leaks-more",
            "The gradients of the first epoch rebuild better than those of the second.",
            "20.379 against 19.085 dB",
            above("psnr", {"epochs": "1"}, {"epochs": "2"}, ended="any"),
        ),
    ),
    numbers=tuple(
        number
        for epochs, values in PRINTED.items()
        for number in print_quality("Table VI", f"epochs {epochs}", "CIFAR-100", values, tags={"epochs": epochs})
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
            options={
                "schedule": "accelerated",
                "pre_steps": 2,
                "examples": 32,
                "images": 2,
                "epochs": ["1,2"],
            },
        ),
        RecipeScale(
            "cpu",
            8,
            victims=6,
            among=800,
            steps=120,
            models=("resnet20",),
            data=("cifar100",),
            options={"schedule": "accelerated", "pre_steps": 60, "examples": 480, "images": 3},
        ),
        RecipeScale(
            "paper",
            30_000,
            victims=50,
            among=10_000,
            steps=10_000,
            models=("resnet20-4",),
            data=("cifar100",),
            options={"schedule": "paper", "pre_steps": 2_000, "examples": 50_000, "images": 4},
        ),
    ),
    cells=cells,
    figures=_figures,
    stand_ins={"ResNet20-4": "ResNet-20, a quarter of its width, at cpu"},
    notes=(
        "A client's images are one unit: they are matched and rebuilt together. The second epoch weighs 0.1, as in the "
        "paper.",
    ),
)
