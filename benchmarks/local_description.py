"""What it is worth to an attacker to know how a client trained: the right description beside wrong ones.

    python benchmarks/local_description.py [--steps 300] [--seeds 3]

Clients train a small network for two epochs of four shuffled batches, with momentum or with Adam, and share what
changed. Inverting Gradients simulates the local training it was told of, in scenario A. The distance is
1 − cosine between the update and its replay at the reconstruction.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

import leakscope as ls
from leakscope.client import run_client
from leakscope.types import Batch, LocalTraining, Observation, SharedUpdate

CLIENTS = {
    "momentum 0.9": LocalTraining(0.05, epochs=2, batch_size=2, momentum=0.9, shuffle=True),
    "adam": LocalTraining(0.01, epochs=2, batch_size=2, optimiser="adam", shuffle=True),
}
# Eight digits of different classes.
INDICES = (0, 1, 2, 3, 4, 5, 6, 7)


def small_network(*, seed: int) -> nn.Module:
    """Two sigmoid layers and a linear one on 8 × 8 pictures."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [nn.Flatten(), nn.Linear(64, 96), nn.Sigmoid(), nn.Linear(96, 48), nn.Sigmoid(), nn.Linear(48, 10)]
        return nn.Sequential(*layers)


def capture(model: nn.Module, batch: Batch, local: LocalTraining, *, seed: int) -> Observation:
    """What a server that knows everything but the inputs sees of a client."""
    run = run_client(model, batch, local=local, seed=seed)
    assert isinstance(run.update, SharedUpdate)
    return replace(ls.observe(model, run.update, scenario="A", truth=batch), order=run.order)


def descriptions(local: LocalTraining) -> dict[str, LocalTraining]:
    """The truth and what an attacker may believe instead."""
    plain = replace(local, optimiser="sgd", momentum=0.0)
    other = replace(plain, optimiser="adam") if local.optimiser == "sgd" else replace(plain, momentum=0.9)
    return {"right": local, "plain sgd": plain, "other optimiser": other}


def believe(seen: Observation, local: LocalTraining) -> Observation:
    """The same update as seen by someone who takes it for the work of `local`."""
    return replace(seen, local=local, update=replace(seen.update, local=local))


def attack(seen: Observation, batch: Batch, *, steps: int, seed: int) -> tuple[float, float]:
    """Distance of the best match, and its median PSNR."""
    found = ls.get_attack("inverting-gradients", replay="simulate", steps=steps).reconstruct(seen, seed=seed)
    return found.loss, float(ls.score(found, batch).psnr.median())


def table(*, steps: int, seeds: int) -> list[tuple[str, str, float, float]]:
    """Client, description, and medians of distance and PSNR."""
    batch = ls.data.load("digits", indices=list(INDICES))
    rows = []
    for name, local in CLIENTS.items():
        victims = [capture(small_network(seed=seed), batch, local, seed=seed) for seed in range(seeds)]
        believed = {**descriptions(local), "right, order unknown": local}
        for told, description in believed.items():
            seen = [believe(victim, description) for victim in victims]
            if told.endswith("unknown"):
                seen = [replace(one, order=None) for one in seen]
            reached = [attack(one, batch, steps=steps, seed=seed) for seed, one in enumerate(seen)]
            distance, psnr = (statistics.median(column) for column in zip(*reached, strict=True))
            rows.append((name, told, distance, psnr))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(f"{'client':14}{'described as':24}{'distance':>10}{'PSNR':>8}")
    for name, told, distance, psnr in table(steps=chosen.steps, seeds=chosen.seeds):
        print(f"{name:14}{told:24}{distance:10.4f}{psnr:8.1f}")


if __name__ == "__main__":
    main()
