"""AGIC beside what it replaces: simulated local steps, and one update where there are two.

    LEAKSCOPE_DATA=<folder> python benchmarks/agic_updates.py fedavg [--model small-convnet] [--steps 60] [--victims 2]
    LEAKSCOPE_DATA=<folder> python benchmarks/agic_updates.py epochs [--steps 300] [--victims 6]

`fedavg`: 4 local steps of 1 image at rate 1e-4; AGIC against Inverting Gradients that simulates
the steps and knows the order of labels (scenario A), equal steps, processor time. `epochs`: two
images, one gradient of an untrained network and one after a round of training on other images.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Sequence
from itertools import chain, pairwise

import torch
from torch import nn

import leakscope as ls
from leakscope.attack import Attack
from leakscope.attacks.agic import agic
from leakscope.attacks.inverting_gradients import inverting_gradients
from leakscope.types import Batch, Observation, Reconstruction

FIRST = 101


def timed(attack: Attack, seen: Observation, seed: int) -> tuple[Reconstruction, float]:
    """A reconstruction and its processor time."""
    began = time.process_time()
    return attack.reconstruct(seen, seed), time.process_time() - began


def psnr(found: Reconstruction, batch: Batch) -> list[float]:
    """Per image, after assignment."""
    return ls.score(found, batch).psnr.tolist()


def fedavg(name: str, *, steps: int, victims: int, local_steps: Sequence[int]) -> None:
    """Time and quality of both ways to read a delta."""
    for count in local_steps:
        for victim in range(victims):
            small = name == "small-convnet"
            model = small_convnet(0) if small else ls.models.build(name, normalise="cifar10", seed=0)
            first = FIRST + victim * count
            batch = ls.data.load("cifar10", indices=list(range(first, first + count)))
            update = ls.share(model, batch, local=ls.LocalTraining(lr=1e-4, steps=count, batch_size=1))
            seen = ls.observe(model, update, scenario="A", truth=batch)
            quick, brief = timed(agic(steps=steps), seen, victim)
            slow, long = timed(inverting_gradients(steps=steps, replay="simulate"), seen, victim)
            print(
                f"{name}, {count} steps of 1, victim {victim}: agic {statistics.mean(psnr(quick, batch)):.2f} dB "
                f"{brief:.0f} s; simulated {statistics.mean(psnr(slow, batch)):.2f} dB {long:.0f} s; "
                f"{long / brief:.1f}×; {quick.notes[-1]}",
                flush=True,
            )


def small_convnet(seed: int) -> nn.Module:
    """Three convolutions with ReLU, 32 × 32 in, 10 classes out: 22,000 weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [[nn.Conv2d(i, o, 3, stride=2, padding=1), nn.ReLU()] for i, o in pairwise((3, 24, 32, 32))]
        return nn.Sequential(*chain(*layers), nn.Flatten(), nn.Linear(32 * 4 * 4, 10)).eval()


def after_a_round(model: nn.Module) -> nn.Module:
    """The next global model: thirty local steps of another client were added to it."""
    others = ls.data.load("cifar10", indices=list(range(200, 680)))
    update = ls.share(model, others, local=ls.LocalTraining(lr=0.05, steps=30, batch_size=16))
    assert isinstance(update, ls.SharedUpdate)
    later = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in later.named_parameters():
            parameter.add_(update.tensors[name])
    return later


def epochs(*, steps: int, victims: int, size: int, beta: float, tv: float) -> None:
    """Gain of a second update over the first alone."""
    gains = []
    for victim in range(victims):
        first = small_convnet(victim)
        later = after_a_round(first)
        batch = ls.data.load("cifar10", indices=list(range(FIRST + victim * size, FIRST + (victim + 1) * size)))
        swapped = Batch(batch.inputs.flip(0), batch.targets.flip(0))
        seen = [
            ls.observe(model, ls.share(model, own), scenario="C", truth=own)
            for model, own in ((first, batch), (later, swapped))
        ]
        attack = agic(steps=steps, beta=beta, tv=tv)
        both = attack.reconstruct_epochs(seen, victim)
        alone = [attack.reconstruct(one, victim) for one in seen]
        values = [statistics.mean(psnr(found, batch)) for found in (*alone, both.joint)]
        gains.append(values[2] - max(values[:2]))
        print(
            f"victim {victim}: first {values[0]:.2f} dB, later {values[1]:.2f} dB, both {values[2]:.2f} dB; "
            f"members {both.members}",
            flush=True,
        )
    print(f"median gain over the better single update {statistics.median(gains):.2f} dB")


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("fedavg", "epochs"))
    parser.add_argument("--model", default="convnet")
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--victims", type=int, default=None)
    parser.add_argument("--local-steps", type=int, nargs="+", default=(4,))
    parser.add_argument("--size", type=int, default=2)
    parser.add_argument("--beta", type=float, default=50.0)
    parser.add_argument("--tv", type=float, default=0.5)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.part == "fedavg":
        fedavg(chosen.model, steps=chosen.steps or 60, victims=chosen.victims or 2, local_steps=chosen.local_steps)
    else:
        epochs(steps=chosen.steps or 300, victims=chosen.victims or 6, size=chosen.size, beta=chosen.beta, tv=chosen.tv)


if __name__ == "__main__":
    main()
