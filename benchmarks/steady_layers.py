"""What comparing steady layers alone is worth to a search, on victims that were not used to choose them.

    LEAKSCOPE_DATA=<folder> python benchmarks/steady_layers.py [--networks convnet resnet20-4] [--steps 60 200]

Inverting Gradients with `layers=all` and with its default, all else equal: one gradient of one picture of CIFAR-10,
labels known, one thread, processor time with set-up. Six test pictures, drawn by a fixed seed before the first run from
those that `time_to_picture.py` and `reproductions.check` leave alone, each behind weights of a
seed of its own. The rule was chosen on training pictures 4001, 4102, 4203 and 4304.
"""

from __future__ import annotations

import argparse
import random
import time
from statistics import fmean

import torch

import leakscope as ls
from leakscope.types import Batch, Observation

VICTIMS = random.Random(29).sample(range(40, 300), 6)
FIRST_WEIGHTS = 201


def draw(network: str, *, normalised: bool) -> list[tuple[Observation, Batch]]:
    """One gradient of each picture."""
    found = []
    for number, index in enumerate(VICTIMS):
        model = ls.models.build(
            network,
            num_classes=10,
            in_channels=3,
            image_size=32,
            seed=FIRST_WEIGHTS + number,
            normalise="cifar10" if normalised else None,
        )
        batch = ls.data.load("cifar10", split="test", indices=[index])
        found.append((ls.observe(model, ls.share(model, batch, seed=0), scenario="B", truth=batch), batch))
    return found


def attack_all(victims: list[tuple[Observation, Batch]], *, layers: str, steps: int) -> tuple[list[float], float]:
    """PSNR of every victim, and mean processor seconds."""
    attack, levels, began = ls.get_attack("inverting-gradients", steps=steps, layers=layers), [], time.process_time()
    for number, (seen, batch) in enumerate(victims):
        found = attack.reconstruct(seen, number, diagnosing=False)
        levels.append(float(ls.score(found, batch).psnr[0]))
    return levels, (time.process_time() - began) / len(victims)


def main() -> None:
    """Print a line per network and length."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--networks", nargs="+", default=["convnet", "resnet20-4"])
    parser.add_argument("--layers", nargs="+", choices=("normalised", "plain"), default=["normalised", "plain"])
    parser.add_argument("--steps", type=int, nargs="+", default=[60, 200])
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"victims: test pictures {VICTIMS}, weights of seeds {FIRST_WEIGHTS} to {FIRST_WEIGHTS + 5}")
    print("| network | steps | all layers, dB | steady ones, dB | means | seconds |\n|---|---|---|---|---|---|")
    for network in args.networks:
        for layer in args.layers:
            victims = draw(network, normalised=layer == "normalised")
            for steps in args.steps:
                (before, slow), (after, fast) = (
                    attack_all(victims, layers=one, steps=steps) for one in ("all", "steady")
                )
                lists = " | ".join(" ".join(f"{value:.1f}" for value in values) for values in (before, after))
                means = f"{fmean(before):.1f} → {fmean(after):.1f}"
                print(f"| {network}, {layer} | {steps} | {lists} | {means} | {slow:.1f} → {fast:.1f} |", flush=True)


if __name__ == "__main__":
    main()
