"""AGIC, Table III: updates of FedAvg from one epoch and from two."""

from __future__ import annotations

from collections.abc import Iterator

from leakscope.reproduction import (
    Claim,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    above,
    attack_cell,
    call_cell,
    draw_victims,
    network,
    training,
)
from leakscope.reproduction.cells import Spec
from leakscope.reproduction.papers import AGIC
from leakscope.types import LocalTraining
from reproductions.agic.methods import EXPECTED, PUBLISHED_BETA, attack_delta, print_quality

NAME = "agic/table-3"
PRINTED = {
    ("DLG-Adam", "1"): (12.196, 0.292, 0.087),
    ("InvG", "1"): (14.398, 0.419, 0.065),
    ("AGIC", "1"): (15.651, 0.486, 0.055),
    ("AGIC", "1,2"): (16.664, 0.533, 0.040),
}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Four local steps of two images; the second epoch's update is of the same images, from a trained network."""
    data, (steps, size) = scale.data[0], scale.options["local"]
    local = LocalTraining(lr=1e-4, steps=steps, batch_size=size)
    count = steps * size
    victims = draw_victims(NAME, scale.name, count=scale.victims, among=scale.among, data=data, batch_size=count)
    for victim, batch in enumerate(victims):
        for method, epochs in scale.options.get("rows", PRINTED):
            tags = {"method": method, "epochs": epochs, "victim": victim}
            if method == "AGIC":
                yield call_cell(
                    tags,
                    "reproductions.agic.epochs:rebuild_epochs",
                    reads=[{"name": data, "split": "test", "indices": batch}],
                    use=epochs,
                    data=data,
                    indices=[batch],
                    model=network(scale.models[0], seed=victim, trained=train_a_round(scale, victim)),
                    attack=agic_options(scale, beta=PUBLISHED_BETA, modifier=True),
                    local=local.settings(),
                    scenario="A",
                    seed=victim,
                    lpips=scale.is_evidence,
                )
            else:
                yield attack_cell(
                    tags,
                    model=network(scale.models[0], seed=victim),
                    data=data,
                    indices=[batch],
                    attack=attack_delta(method, schedule=scale.options["schedule"], steps=scale.steps),
                    local=local,
                    scenario="A",
                    seed=victim,
                    lpips=scale.is_evidence,
                    expected=EXPECTED,
                )


def agic_options(scale: RecipeScale, *, beta: float, modifier: bool) -> Spec:
    """AGIC for updates of several epochs, with the paper's weights of epochs."""
    found: Spec = {"schedule": scale.options["schedule"], "steps": scale.steps, "beta": beta, "relu_modifier": modifier}
    return found | {"pre_steps": scale.options["pre_steps"], "gammas": [1.0, 0.1]}


def train_a_round(scale: RecipeScale, seed: int) -> Spec:
    """What happens between the two epochs: a pass over training images."""
    local = LocalTraining(lr=0.05, epochs=1, batch_size=32, momentum=0.9, shuffle=True)
    examples, tested = scale.options["examples"], min(100, scale.options["examples"])
    return training(
        scale.data[0], rounds=1, local=local, examples=examples, test_examples=tested, held_out=0.0, seed=seed
    )


def _above(first: tuple[str, str], second: tuple[str, str], statement: str) -> Claim:
    names = [f"{method}-{epochs}".lower().replace(",", "") for method, epochs in (first, second)]
    ours, others = ({"method": method, "epochs": epochs} for method, epochs in (first, second))
    return Claim(
        "-above-".join(names),
        statement,
        f"{PRINTED[first][0]} against {PRINTED[second][0]} dB",
        above("psnr", ours, others, ended="any"),
    )


RECIPE = PaperRecipe(
    name=NAME,
    paper=AGIC,
    item="Table III",
    title="updates of FedAvg from one epoch and from two: four local steps of two images",
    scenario="A",
    claims=(
        _above(("AGIC", "1,2"), ("AGIC", "1"), "AGIC rebuilds better from two epochs than from one."),
        _above(("AGIC", "1"), ("InvG", "1"), "From one epoch AGIC rebuilds better than Inverting Gradients."),
        _above(
            ("AGIC", "1,2"), ("InvG", "1"), "From two epochs AGIC rebuilds better than Inverting Gradients from one."
        ),
        _above(("InvG", "1"), ("DLG-Adam", "1"), "Inverting Gradients rebuilds better than DLG-Adam."),
    ),
    numbers=tuple(
        number
        for (method, epochs), values in PRINTED.items()
        for number in print_quality(
            "Table III", method, f"epochs {epochs}", values, tags={"method": method, "epochs": epochs}
        )
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
                "local": [2, 1],
                "examples": 32,
                "rows": [["InvG", "1"], ["AGIC", "1,2"]],
            },
        ),
        RecipeScale(
            "cpu",
            10,
            victims=5,
            among=800,
            steps=100,
            models=("resnet20",),
            data=("cifar100",),
            options={"schedule": "accelerated", "pre_steps": 50, "local": [4, 2], "examples": 480},
        ),
        RecipeScale(
            "paper",
            100_000,
            victims=100,
            among=10_000,
            steps=10_000,
            models=("resnet20-4",),
            data=("cifar100",),
            options={"schedule": "paper", "pre_steps": 2_000, "local": [4, 2], "examples": 50_000},
        ),
    ),
    cells=cells,
    stand_ins={"ResNet20-4": "ResNet-20, a quarter of its width, at cpu"},
    notes=(
        "Which examples the two updates share is not given to the attack here: it recognises them by label and image.",
        "The second epoch weighs 0.1, as in the paper.",
    ),
)
