"""What rates in units of a picture's deviation, and a start with little noise, are worth to a short search.

    LEAKSCOPE_DATA=<folder> python benchmarks/pixel_units.py [--networks convnet lenet5] [--steps 20 80]

Inverting Gradients with the coordinates of its own schedule beside those of the published one (`schedule="paper"`), all
else equal: the same victims, labels known, one gradient, rates and penalties of the own schedule. Victims were drawn
before the first run and are not those on which the coordinates were chosen (CIFAR-10 train 4001, 4102, 4203, 4304;
Fashion-MNIST test 200, 210, 220; digits 200 to 233).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch

import leakscope as ls
from leakscope.matching.candidates import Pixels
from leakscope.matching.presets import schedule_preset
from leakscope.types import Batch, Observation


@dataclass(frozen=True)
class Subject:
    """A network, its options, and the pictures behind it."""

    network: str
    data: str
    indices: tuple[int, ...]
    options: dict[str, Any]

    def victims(self) -> Iterator[tuple[Observation, Batch]]:
        """One gradient of one picture each, all of one model."""
        first = ls.data.load(self.data, split="test", indices=[self.indices[0]])
        channels, side = first.inputs.shape[1:3]
        model = ls.models.build(
            self.network, num_classes=10, in_channels=channels, image_size=side, seed=1, **self.options
        )
        for index in self.indices:
            batch = ls.data.load(self.data, split="test", indices=[index])
            yield ls.observe(model, ls.share(model, batch, seed=1), scenario="B", truth=batch), batch


_CIFAR, _FASHION, _DIGITS = tuple(range(610, 616)), tuple(range(900, 906)), tuple(range(300, 306))
SUBJECTS = {
    "mlp": Subject("mlp", "digits", _DIGITS, {}),
    "lenet5": Subject("lenet5", "fashion-mnist", _FASHION, {}),
    "lenet5-relu": Subject("lenet5", "fashion-mnist", _FASHION, {"activation": "relu"}),
    "lenet-dlg": Subject("lenet-dlg", "cifar10", _CIFAR, {}),
    "convnet": Subject("convnet", "cifar10", _CIFAR, {}),
    "convnet-normalised": Subject("convnet", "cifar10", _CIFAR, {"normalise": "cifar10"}),
    "resnet20-4": Subject("resnet20-4", "cifar10", _CIFAR, {}),
    "resnet20-4-normalised": Subject("resnet20-4", "cifar10", _CIFAR, {"normalise": "cifar10"}),
}
COORDINATES = {name: schedule_preset(name).candidate for name in ("paper", "accelerated")}


def attack_all(victims: list[tuple[Observation, Batch]], coordinates: Pixels, steps: int) -> list[float]:
    """PSNR of every victim."""
    attack = ls.get_attack("inverting-gradients", steps=steps)
    attack = attack.revised(lambda recipe: replace(recipe, candidate=coordinates))
    found = attack.reconstruct([seen for seen, _ in victims], 0, diagnosing=False)
    return [float(ls.score(one, batch).psnr[0]) for one, (_, batch) in zip(found, victims, strict=True)]


def main() -> None:
    """Print a line per network and length."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--networks", nargs="+", choices=tuple(SUBJECTS), default=tuple(SUBJECTS))
    parser.add_argument("--steps", type=int, nargs="+", default=[20, 80, 300])
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| network | steps | published coordinates, dB | own, dB | means |\n|---|---|---|---|---|")
    for name in args.networks:
        victims = list(SUBJECTS[name].victims())
        for steps in args.steps:
            before, after = (attack_all(victims, one, steps) for one in COORDINATES.values())
            lists = " | ".join(" ".join(f"{value:.1f}" for value in values) for values in (before, after))
            print(f"| {name} | {steps} | {lists} | {fmean(before):.1f} → {fmean(after):.1f} |", flush=True)


if __name__ == "__main__":
    main()
