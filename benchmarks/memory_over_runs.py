"""Memory of one process over many reconstructions: it must not climb with their number.

    python benchmarks/memory_over_runs.py [--network convnet] [--runs 20] [--steps 20] [--batch 1]

Resident memory (of Linux) after 1, 2, 5, 10, 20, 50, 100, … reconstructions of different random images, and the peak so
far; the tensors that are alive then besides those before the first. Python's collector of reference cycles runs when it
likes, as it does for a user: a cycle that holds a compiled network therefore shows. One thread.
"""

from __future__ import annotations

import argparse
import gc
import resource
from pathlib import Path

import torch
from torch import Tensor, nn

import leakscope as ls
from leakscope.attack import Attack
from leakscope.models import build
from leakscope.rng import generator
from leakscope.types import Batch


def resident_megabytes() -> float:
    """What the process holds just now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def peak_megabytes() -> float:
    """The most it ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def count_tensors() -> int:
    """Tensors that Python knows; the type is compared because some objects of torch warn when asked for their class."""
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


def reconstruct(model: nn.Module, attack: Attack, *, batch: int, seed: int) -> None:
    """Share a gradient of random images, attack it, and forget all of it."""
    images = torch.rand(batch, 3, 32, 32, generator=generator(seed, "images"))
    truth = Batch(images, torch.arange(batch) % 10)
    attack.reconstruct(ls.observe(model, ls.share(model, truth), scenario="B", truth=truth), seed=seed)


def main() -> None:
    """Print one line for each number of reconstructions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="convnet")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    model = build(chosen.network, num_classes=10, in_channels=3, image_size=32, seed=0).eval()
    attack = ls.get_attack("inverting-gradients", steps=chosen.steps)
    begin = count_tensors()
    print(f"{chosen.network}, batch {chosen.batch}, {chosen.steps} steps; before: {resident_megabytes():.0f} MB")
    told = {scale * 10**power for scale in (1, 2, 5) for power in range(6)} | {chosen.runs}
    for run in range(1, chosen.runs + 1):
        reconstruct(model, attack, batch=chosen.batch, seed=run)
        if run in told:
            memory = f"{resident_megabytes():6.0f} MB now  {peak_megabytes():6.0f} MB peak"
            print(f"{run:5d} runs  {memory}  {count_tensors() - begin:+d} tensors", flush=True)


if __name__ == "__main__":
    main()
