"""Time of an inspection as a share of one local epoch on the same machine: `python benchmarks/inspection_time.py`.

An epoch is 5,000 examples in batches of 32 with SGD; of large networks a part of it is timed and scaled up.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch.nn import functional

from leakscope import models
from leakscope.inspection import examine
from leakscope.rng import generator, uniform
from leakscope.types import Batch

EXAMPLES, SIZE = 5_000, 32
SUBJECTS = (("mlp", 3, 32), ("lenet5", 1, 28), ("resnet20", 3, 32), ("vgg16", 3, 32))


def measure(network: str, channels: int, side: int, *, steps: int) -> tuple[float, float]:
    """Seconds of one inspection with everything at hand, and of one epoch."""
    model = models.build(network, in_channels=channels, image_size=side, num_classes=10)
    inputs = uniform((64, channels, side, side), generator(0, "time"))
    batch = Batch(inputs, torch.arange(64) % 10)
    # Twice: the first run also loads what it uses.
    for _ in range(2):
        began = time.process_time()
        examine(model, reference=model, batch=batch, previous=model)
        inspection = time.process_time() - began
    model.train()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    began = time.process_time()
    for _ in range(steps):
        optimiser.zero_grad()
        functional.cross_entropy(model(inputs[:SIZE]), batch.targets[:SIZE]).backward()
        optimiser.step()
    step = (time.process_time() - began) / steps
    return inspection, step * EXAMPLES / SIZE


def main() -> None:
    """Print one line for each network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="one network")
    parser.add_argument("--steps", type=int, default=10, help="training steps to time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| network | inspection | local epoch | share |\n|---|---|---|---|")
    for network, channels, side in SUBJECTS:
        if options.only in (None, network):
            inspection, epoch = measure(network, channels, side, steps=options.steps)
            print(f"| {network} | {inspection:.2f} s | {epoch:.1f} s | {100 * inspection / epoch:.1f} % |", flush=True)


if __name__ == "__main__":
    main()
