"""Time of an inspection as a share of one local epoch on the same machine: `python benchmarks/inspection_time.py`.

An epoch is 5,000 examples in batches of 32 with SGD, of which a part is timed and scaled up. Inspections and parts of
the epoch take turns, and of both the median counts: what else runs on the machine then slows both down alike.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch.nn import functional

from leakscope import models
from leakscope.inspection import examine
from leakscope.rng import generator, uniform
from leakscope.types import Batch

EXAMPLES, SIZE = 5_000, 32
SUBJECTS = (("mlp", 3, 32), ("lenet5", 1, 28), ("resnet20", 3, 32), ("vgg16", 3, 32))


def measure(network: str, channels: int, side: int, *, steps: int, turns: int) -> tuple[float, float]:
    """Seconds of one inspection with everything at hand, and of one epoch."""
    model = models.build(network, in_channels=channels, image_size=side, num_classes=10)
    inputs = uniform((64, channels, side, side), generator(0, "time"))
    batch = Batch(inputs, torch.arange(64) % 10)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def train() -> None:
        for _ in range(steps):
            optimiser.zero_grad()
            functional.cross_entropy(model(inputs[:SIZE]), batch.targets[:SIZE]).backward()
            optimiser.step()

    inspections, epochs = [], []
    # One turn more: the first also loads what it uses.
    for _ in range(turns + 1):
        inspections.append(_seconds(lambda: examine(model, reference=model, batch=batch, previous=model)))
        model.train()
        epochs.append(_seconds(train) / steps * EXAMPLES / SIZE)
    return median(inspections[1:]), median(epochs[1:])


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    """Print one line for each network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="one network")
    parser.add_argument("--steps", type=int, default=10, help="training steps to time")
    parser.add_argument("--turns", type=int, default=5, help="inspections to time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| network | inspection | local epoch | share |\n|---|---|---|---|")
    for network, channels, side in SUBJECTS:
        if options.only in (None, network):
            inspection, epoch = measure(network, channels, side, steps=options.steps, turns=options.turns)
            print(f"| {network} | {inspection:.2f} s | {epoch:.1f} s | {100 * inspection / epoch:.1f} % |", flush=True)


if __name__ == "__main__":
    main()
