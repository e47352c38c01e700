"""The cells of chapter 5: networks with and without a key-lock, attacked and trained, beside fair baselines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from leakscope.reproduction import RecipeCell, RecipeScale, attack_cell, draw_victims, network, training, training_cell
from leakscope.types import LocalTraining

LEGACY = "psnr_root_mse_8bit"
PLAIN, NORMALISED, UNSCALED = "w/o KL", "w/o KL, normalised", "w/o KL, normalised without scale"
LOCKED, KNOWN = "w/ KL", "w/ KL, known"
RELU, RELU_KNOWN = "w/ KL, ReLU", "w/ KL, ReLU, known"
# The network as it is; the same normalisation as the lock's with a trained scale and shift, and with none; the lock
# without and with the released code's ReLU. "known" is the attacker who knows of the lock and searches for it.
ARMS: dict[str, tuple[str, bool]] = {
    PLAIN: ("none", False),
    NORMALISED: ("key-lock:scaling=affine", False),
    UNSCALED: ("key-lock:scaling=none", False),
    LOCKED: ("key-lock", False),
    KNOWN: ("key-lock", True),
    RELU: ("key-lock:activation=relu", False),
    RELU_KNOWN: ("key-lock:activation=relu", True),
}
NOTES = (
    "The thesis compares a locked LeNet, which has batch normalisation, with one that has none, and ResNets with other "
    "activations and shortcuts. Here all have the same activations; normalisation alone has rows of its own.",
    "The lock has no activation unless ReLU is named: the formulas of the thesis have none, its code has one, and then "
    "about half of the channels are dead.",
)
# How an attack may end that is compared at its published length; never evidence of protection.
CUT = "attacks are compared after as many steps"
EXPECTED = {
    "unfinished": CUT,
    "diverged": "it ends above the distance it began with; it is shown, and is no evidence of protection",
    "unexplained": "its picture does not explain the update; it is shown, and is no evidence of protection",
    "nan": "the match left the numbers; it is shown, and is no evidence of protection",
}


def lock_attack(
    scale: RecipeScale,
    tags: Mapping[str, Any],
    *,
    batch: Sequence[int],
    victim: int,
    model: str,
    data: str,
    size: int | None,
    attack: str,
    defence: str,
    adaptive: bool,
) -> RecipeCell:
    """One attack on the gradient of one picture; the network normalises with the statistics of the picture itself."""
    return attack_cell(
        {**tags, "victim": victim},
        model=network(model, seed=victim, mode="train"),
        data=data,
        indices=[batch],
        attack=attack,
        defence=defence,
        adaptive=adaptive,
        scenario="C",
        seed=victim,
        size=size,
        lpips=scale.options["lpips"],
        legacy=LEGACY,
        pictures=int(victim == 0),
        expected=EXPECTED,
    )


def draw_pictures(name: str, scale: RecipeScale, data: str) -> list[list[int]]:
    """Victims of chapter 5's attacks: one picture an update."""
    return draw_victims(name, scale.name, count=scale.victims, among=scale.among, data=data)


# Networks and sets of Table 5.1 by the paper's names.
PLACES = ("Cen.", "FL")
TRAINED_METHODS = {
    PLAIN: "none",
    NORMALISED: "key-lock:scaling=affine",
    UNSCALED: "key-lock:scaling=none",
    LOCKED: "key-lock",
    RELU: "key-lock:activation=relu",
}
CLIENTS = 3


def lock_trainings(scale: RecipeScale) -> Iterator[RecipeCell]:
    """All trainings of Tables 5.1 to 5.3: by network and set, in one place and at three clients, one for each seed."""
    for seed in scale.seeds:
        for one in scale.options["settings"]:
            for place, methods in one["methods"].items():
                for method in methods:
                    tags = {"model": one["model"], "data": one["data"], "place": place, "method": method}
                    yield lock_training(scale, {**tags, "seed": seed}, one)


def lock_training(scale: RecipeScale, tags: Mapping[str, Any], one: Mapping[str, Any]) -> RecipeCell:
    """One of them; accuracy under a key-lock is the mean over the clients, each with its own key and lock layers."""
    local = LocalTraining(
        lr=0.01, epochs=1, batch_size=one["batch"], momentum=0.9, nesterov=True, weight_decay=5e-4, shuffle=True
    )
    how = training(
        one["set"],
        rounds=one["rounds"],
        local=local,
        clients=CLIENTS,
        defence=TRAINED_METHODS[str(tags["method"])],
        examples=one["examples"],
        test_examples=one["tested"],
        seed=int(tags["seed"]),
        size=one["size"],
        held_out=0.0,
        central=tags["place"] == "Cen.",
    )
    return training_cell(tags, model=network(one["network"], seed=int(tags["seed"]), **one["options"]), how=how)


def setting(
    model: str, data: str, *, network: str, set: str, size: int | None, batch: int, rounds: int, **rest: Any
) -> dict[str, Any]:
    """One network on one set; `methods` by place, the others are the training's."""
    found = {"model": model, "data": data, "network": network, "set": set, "size": size, "batch": batch}
    return {**found, "rounds": rounds, "options": {}, "examples": None, "tested": None, **rest}


FAIR = [PLAIN, NORMALISED, UNSCALED, LOCKED, RELU]
# A ResNet has normalisation of its own: without the lock it is the normalised baseline.
RESNET = [PLAIN, UNSCALED, LOCKED, RELU]
SMALL = {"activation": "relu", "init": "default"}


def training_scales(*, smoke: float, cpu: float, paper: float) -> tuple[RecipeScale, ...]:
    """The scales of Tables 5.1 to 5.3, which share their cells."""
    tiny = setting(
        "LeNet",
        "MNIST",
        network="reproductions.networks:small_convnet",
        set="digits",
        size=None,
        batch=16,
        rounds=2,
        examples=48,
        tested=20,
        methods={"Cen.": [LOCKED], "FL": [PLAIN, LOCKED]},
    )
    lenet = setting(
        "LeNet",
        "MNIST",
        network="lenet-dlg",
        set="fashion-mnist",
        size=32,
        batch=32,
        rounds=10,
        options=SMALL,
        examples=1_920,
        tested=500,
        methods={"Cen.": FAIR, "FL": FAIR},
    )
    resnet = setting(
        "ResNet-20",
        "C-10",
        network="resnet20",
        set="cifar10",
        size=None,
        batch=32,
        rounds=4,
        examples=1_920,
        tested=500,
        methods={"Cen.": [PLAIN, LOCKED], "FL": RESNET},
    )
    return (
        RecipeScale("smoke", smoke, steps=2, models=("small convnet",), data=("digits",), options={"settings": [tiny]}),
        RecipeScale(
            "cpu",
            cpu,
            seeds=(0, 1, 2),
            steps=10,
            models=("lenet-dlg", "resnet20"),
            data=("fashion-mnist", "cifar10"),
            options={"settings": [lenet, resnet]},
        ),
        RecipeScale(
            "paper",
            paper,
            seeds=(0, 1, 2),
            steps=200,
            models=("lenet-dlg", "resnet20", "resnet32", "resnet18", "resnet34", "vgg16"),
            data=("mnist", "cifar10", "cifar100"),
            options={"settings": list(_paper_settings())},
        ),
    )


def _paper_settings() -> Iterator[dict[str, Any]]:
    shared: dict[str, Any] = {"batch": 64, "rounds": 200}
    everywhere = {place: FAIR for place in PLACES}
    yield setting("LeNet", "MNIST", network="lenet-dlg", set="mnist", size=32, methods=everywhere, **shared)
    sides = {"ResNet-20": 32, "ResNet-32": 32, "ResNet-18": 224, "ResNet-34": 224, "VGG-16": 224}
    for model, side in sides.items():
        methods = {place: FAIR if model == "VGG-16" else RESNET for place in PLACES}
        for data, name in (("C-10", "cifar10"), ("C-100", "cifar100")):
            yield setting(
                model,
                data,
                network=model.lower().replace("resnet-", "resnet").replace("vgg-", "vgg"),
                set=name,
                size=None if side == 32 else side,
                methods=methods,
                **shared,
            )


TRAINING_STAND_INS = {
    "MNIST": "fashion-mnist at 32 × 32, 1,920 pictures: mnist is not on this machine",
    "CIFAR-10": "1,920 of the 5,170 pictures that are on this machine; of CIFAR-100 there are too few to train on",
    "LeNet": "the same layers with ReLU and PyTorch's initial weights in all rows: with sigmoids it does not learn in "
    "so few steps",
    "200 rounds": "10 rounds for LeNet and 4 for ResNet-20, batches of 32",
}
TRAINING_NOTES = (
    *NOTES,
    "A client draws its lock layers itself; in the released code all clients get the first ones from the server. Rates "
    "do not fall here; in the thesis they are multiplied by 0.2 after 60, 120 and 160 rounds.",
)
