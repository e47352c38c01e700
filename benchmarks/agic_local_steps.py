"""Time of one step of AGIC against the number of local steps behind the update; it must not grow.

    LEAKSCOPE_DATA=<folder> python benchmarks/agic_local_steps.py [--network convnet] [--rounds 5]

The same images are used in T = 1, 2, 4, 8 local steps, each image once. Runs take turns; a ratio
sets a run beside the one with T = 1 of the same round. Below it, what simulating the local steps costs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

import leakscope as ls
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.types import Batch, Observation

LOCAL_STEPS = (1, 2, 4, 8)
RATE = 1e-4
TOLERANCE = 0.1


def victims(model: nn.Module, batch: Batch, *, scenario: str) -> dict[int, Observation]:
    """The same images behind updates of different numbers of local steps."""
    found = {}
    for steps in LOCAL_STEPS:
        local = ls.LocalTraining(RATE, steps=steps, batch_size=len(batch) // steps)
        update = ls.share(model, batch, local=local)
        found[steps] = ls.observe(model, update, scenario=scenario, truth=batch)
    return found


def seconds_per_step(attack: GradientMatching, seen: Observation) -> float:
    """Median processor time between two steps; set-up, before the first, is left out."""
    marks: list[float] = []

    def watch(_step: int, _images: Tensor, _distances: Tensor) -> None:
        marks.append(time.process_time())

    attack.reconstruct(seen, watch=watch)
    return statistics.median(after - before for before, after in pairwise(marks))


def measured(attack: GradientMatching, seen: dict[int, Observation], *, rounds: int) -> dict[int, list[float]]:
    """Seconds per step of every number of local steps, in turns; every second round runs backwards."""
    times: dict[int, list[float]] = {steps: [] for steps in seen}
    seconds_per_step(attack, next(iter(seen.values())))  # warms up, or the first in turn would pay for it
    for turn in range(rounds):
        for steps in list(seen)[:: -1 if turn % 2 else 1]:
            times[steps].append(seconds_per_step(attack, seen[steps]))
    return times


def growth(times: dict[int, list[float]]) -> dict[int, float]:
    """Median over rounds of the time beside that of the fewest local steps in the same round."""
    base = times[min(times)]
    return {
        steps: statistics.median(mine / first for mine, first in zip(values, base, strict=True))
        for steps, values in times.items()
    }


def lines(title: str, times: dict[int, list[float]]) -> list[str]:
    """One line for each number of local steps."""
    ratios = growth(times)
    return [
        f"{title}, {steps} local steps: {1e3 * statistics.median(values):.0f} ms per step, {ratios[steps]:.2f}×"
        for steps, values in times.items()
    ]


def named(name: str, **options: object) -> GradientMatching:
    """A registered attack whose steps can be watched."""
    attack = ls.get_attack(name, **options)
    if not isinstance(attack, GradientMatching):
        raise SystemExit(f"{name} takes no steps that could be watched")
    return attack


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="convnet")
    parser.add_argument("--images", type=int, default=8, help="a multiple of 8")
    parser.add_argument("--steps", type=int, default=4, help="of the attack in one run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--simulate", action="store_true", help="also time the simulation, once: slow")
    chosen = parser.parse_args(arguments)
    if chosen.images % max(LOCAL_STEPS):
        parser.error(f"--images must be a multiple of {max(LOCAL_STEPS)}, got {chosen.images}")
    return chosen


def main() -> None:
    """Print the table and whether the time stays within a tenth."""
    args = parse()
    torch.set_num_threads(1)
    model = ls.models.build(args.network, num_classes=10, normalise="cifar10", seed=0)
    batch = ls.data.load("cifar10", indices=list(range(args.images)))
    times = measured(named("agic", steps=args.steps), victims(model, batch, scenario="B"), rounds=args.rounds)
    print("\n".join(lines("agic", times)))
    worst = max(abs(ratio - 1) for ratio in growth(times).values())
    verdict = "within" if worst <= TOLERANCE else "NOT within"
    print(f"largest change from 1 to {max(LOCAL_STEPS)} local steps: {worst:.1%}, {verdict} {TOLERANCE:.0%}")
    if args.simulate:
        attack = named("inverting-gradients", steps=2, replay="simulate")
        print("\n".join(lines("simulated", measured(attack, victims(model, batch, scenario="A"), rounds=1))))


if __name__ == "__main__":
    main()
