"""What batch statistics are worth to an attacker: one attack, told of them in five ways.

    python benchmarks/statistics_in_attacks.py [--network resnet20] [--batch 4] [--victims 4] [--iterations 150] \
        [--data cifar10]

GradInversion against one step of a network in training mode, whose prior on batch-norm statistics is off, or pulls
towards the running statistics (of 160 other inputs), those of 64 public inputs, those that follow from the buffers the
client sent, or the exact ones. Labels are known, victims are consecutive test inputs, and nothing is tuned here. One
line per victim, then means and the paired difference to the attack without the prior with its 95 % interval.
`batch_statistics.py` says how well each way knows the statistics themselves.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import torch
from batch_statistics import make_parser, pictures, settle
from torch import Tensor, nn

from leakscope.attacks.gradinversion import gradinversion
from leakscope.client import share
from leakscope.metrics import score
from leakscope.models import build
from leakscope.observation import observe
from leakscope.reproduction.statistics import paired_interval
from leakscope.types import Batch, Observation

PUBLIC, OTHER = 64, 160


def observe_each_way(model: nn.Module, batch: Batch, public: Tensor) -> dict[str, Observation]:
    """What the attacker sees, by the way in which statistics become known."""
    plain, whole = (share(model, batch, sends_buffers=sends) for sends in (False, True))
    exact = observe(model, plain, scenario="A", truth=batch)
    known = {"scenario": "B", "truth": batch}
    without = observe(model, plain, **known)
    return {
        "without": without,
        "running": without,
        "public": observe(model, plain, proxy=public, **known),
        "sent": observe(model, whole, **known),
        "exact": replace(without, batch_statistics=exact.batch_statistics),
    }


def attack_each_way(model: nn.Module, batch: Batch, public: Tensor, *, steps: int, seed: int) -> dict[str, float]:
    """Mean dB of a batch by each way."""
    found = {}
    for way, seen in observe_each_way(model, batch, public).items():
        prior = {"batch_norm": 0.0} if way == "without" else {}
        rebuilt = gradinversion(steps=steps, seeds=1, **prior).reconstruct(seen, seed=seed)
        found[way] = float(score(rebuilt, batch).psnr.mean())
    return found


def main() -> None:
    """Print one line for each victim, the means and what each way adds."""
    parser = make_parser(__doc__, batch=4)
    parser.add_argument("--victims", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=150)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    private, public, other = pictures(chosen.data, chosen.victims * chosen.batch + PUBLIC + OTHER).split(
        [chosen.victims * chosen.batch, PUBLIC, OTHER]
    )
    rows = []
    for number, inputs in enumerate(private.split(chosen.batch)):
        model = settle(build(chosen.network, num_classes=10, in_channels=3, image_size=32, seed=number), other)
        batch = Batch(inputs, torch.arange(len(inputs)) % 10)
        rows.append(attack_each_way(model, batch, public, steps=chosen.iterations, seed=number))
        print(f"victim {number}: " + ", ".join(f"{way} {value:.2f}" for way, value in rows[-1].items()), flush=True)
    for way in rows[0]:
        values, plain = ([row[one] for row in rows] for one in (way, "without"))
        told = paired_interval(values, plain)
        between = "" if told.interval is None else f" [{told.interval[0]:+.2f}, {told.interval[1]:+.2f}]"
        print(f"{way:8s} {fmean(values):6.2f} dB  {told.value:+.2f}{between}")


if __name__ == "__main__":
    main()
