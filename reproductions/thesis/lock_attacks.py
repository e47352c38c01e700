"""The attacks of Tables 5.4, 5.6 and 5.7: which network, which data, which attack at which length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leakscope.reproduction import RecipeCell, RecipeScale
from reproductions.thesis.locks import (
    ARMS,
    KNOWN,
    LOCKED,
    NORMALISED,
    PLAIN,
    RELU,
    UNSCALED,
    draw_pictures,
    lock_attack,
)

# All items draw this one's victims and use its folder: cells that several of them show run once.
SHARED = "thesis/table-5-6"
GRNN = "GRNN"
DLG = "DLG"
STAND_INS = {
    "MNIST, CIFAR-100": "CIFAR-10 alone at cpu",
    "ResNet-20, ResNet-18": "LeNet alone at cpu: a run of GRNN behind them takes minutes to hours for each picture",
    "20,000 iterations of GRNN": "1,000, as in the first release; DLG 100 with one restart",
}


def make_scales(*, smoke: float, cpu: float, paper: float) -> tuple[RecipeScale, ...]:
    """The three scales: LeNet of DLG, all weights from U(−0.5, 0.5), sigmoids; at the paper's scale ResNets, too."""
    tiny = {
        "model": "LeNet",
        "network": "reproductions.networks:small_convnet",
        "size": None,
        "data": {"C-10": "digits"},
        "attacks": {GRNN: {"spec": "grnn:steps=2", "arms": [PLAIN, LOCKED, KNOWN]}},
    }
    grnn = "grnn:schedule=paper,steps={}"
    lenet = {
        "model": "LeNet",
        "network": "lenet-dlg",
        "size": None,
        "data": {"C-10": "cifar10"},
        "attacks": {
            DLG: {"spec": "dlg:steps=100,retries=1", "arms": [PLAIN, NORMALISED, LOCKED, KNOWN]},
            GRNN: {"spec": grnn.format(1_000), "arms": [PLAIN, NORMALISED, UNSCALED, LOCKED, KNOWN, RELU]},
        },
    }
    return (
        RecipeScale(
            "smoke", smoke, victims=1, among=300, steps=2, data=("digits",), options={"grid": [tiny], "lpips": False}
        ),
        RecipeScale(
            "cpu",
            cpu,
            victims=4,
            among=800,
            steps=1_000,
            models=("lenet-dlg",),
            data=("cifar10",),
            options={"grid": [lenet], "lpips": True},
        ),
        RecipeScale(
            "paper",
            paper,
            victims=20,
            among=10_000,
            steps=20_000,
            models=("lenet-dlg", "resnet20", "resnet18-grnn"),
            data=("mnist", "cifar10", "cifar100", "imagenet"),
            options={"grid": list(_paper_grid()), "lpips": True},
        ),
    )


def _paper_grid() -> Iterator[dict[str, Any]]:
    small = {"MNIST": "mnist", "C-10": "cifar10", "C-100": "cifar100"}
    large = {"C-10": "cifar10", "C-100": "cifar100", "ILSVRC": "imagenet"}
    grnn = {"spec": "grnn:schedule=paper,steps=20000", "arms": list(ARMS)}
    deep = {"spec": "grnn:schedule=paper,steps=20000,tv=1e-6", "arms": [one for one in ARMS if one != NORMALISED]}
    dlg = {"spec": "dlg", "arms": list(ARMS)}
    # Of MNIST's 28 pixels GRNN can make none: 32, as in the thesis.
    both = {DLG: dlg, GRNN: grnn}
    yield {"model": "LeNet", "network": "lenet-dlg", "size": 32, "data": small, "attacks": both}
    yield {"model": "ResNet-20", "network": "resnet20", "size": 32, "data": small, "attacks": {GRNN: deep}}
    yield {"model": "ResNet-18", "network": "resnet18-grnn", "size": 256, "data": large, "attacks": {GRNN: deep}}


def grid_cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Every attack behind every arm, on the same pictures with the same networks."""
    for one in scale.options["grid"]:
        for attack, how in one["attacks"].items():
            yield from arm_cells(scale, one, attack=attack, arms={arm: ARMS[arm] for arm in how["arms"]}, tag="method")


def arm_cells(
    scale: RecipeScale, one: Mapping[str, Any], *, attack: str, arms: Mapping[str, tuple[str, bool]], tag: str
) -> Iterator[RecipeCell]:
    """One attack behind some defences, each with whether the attacker knows of it; `tag` tells them apart."""
    for column, data in one["data"].items():
        for victim, batch in enumerate(draw_pictures(SHARED, scale, data)):
            for arm, (defence, adaptive) in arms.items():
                yield lock_attack(
                    scale,
                    {"attack": attack, "model": one["model"], "data": column, tag: arm},
                    batch=batch,
                    victim=victim,
                    model=one["network"],
                    data=data,
                    size=one["size"],
                    attack=one["attacks"][attack]["spec"],
                    defence=defence,
                    adaptive=adaptive,
                )
