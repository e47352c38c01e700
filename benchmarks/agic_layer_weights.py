"""Do AGIC's layer weights help? PSNR by ratio β, mode and weight of batch norm, signed steps or not.

    LEAKSCOPE_DATA=<folder> python benchmarks/agic_layer_weights.py --out table.jsonl [--steps 80]

CIFAR-10 test images 101 to 104, each behind one gradient of an untrained ResNet20-4, labels
known. Short runs use Adam with a rate that falls from 0.4 to 0 and a relative total variation;
`--schedule paper` is the published optimiser: rate 0.1, three drops, total variation 1e-4. One
line of JSON a victim; what the file already holds is not run again. β = 1 is the plain cosine
of Inverting Gradients; any other β has the ReLU modifier too, as published.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal

import torch

import leakscope as ls
from leakscope.attacks.inverting_gradients import inverting_gradients
from leakscope.matching.distances import BatchNormRule, Cosine, LayerWeighted
from leakscope.matching.optimisers import Adam, linear, three_drops
from leakscope.matching.penalties import TotalVariation
from leakscope.networks import freeze
from leakscope.observation.observe import observe_many
from leakscope.types import Batch, Reconstruction

Mode = Literal["eval", "train"]
Schedule = Literal["short", "paper"]
IMAGES = (101, 102, 103, 104)


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    mode: Mode
    signed: bool
    beta: float
    batch_norm: BatchNormRule
    schedule: Schedule
    steps: int


def settings(
    modes: Sequence[Mode],
    signs: Sequence[bool],
    betas: Sequence[float],
    norms: Sequence[BatchNormRule],
    *,
    schedule: Schedule,
    steps: int,
) -> Iterator[Setting]:
    """All combinations, without those that coincide: at β = 1 only leaving tensors out changes anything."""
    for norm, beta, mode, signed in product(norms, betas, modes, signs):
        if beta != 1 or norm in ("as-conv", "excluded"):
            yield Setting(mode, signed, beta, norm, schedule, steps)


def attack(setting: Setting, victims: Sequence[Batch], seed: int) -> tuple[list[Reconstruction], float]:
    """Reconstruct all victims in lockstep; seconds of processor time for each."""
    model = ls.models.build("resnet20-4", num_classes=10, normalise="cifar10", seed=0)
    model.train(setting.mode == "train")
    frozen, notes = freeze(model)
    updates = [ls.share(model, one) for one in victims]
    seen = observe_many(frozen, updates, scenario="A", truths=victims, notes=notes)
    distance = LayerWeighted(
        Cosine(), beta=setting.beta, relu_modifier=setting.beta != 1, batch_norm=setting.batch_norm
    ).bound(seen[0])
    if setting.schedule == "paper":
        optimiser, penalty = Adam(lr=0.1, signed=setting.signed, schedule=three_drops), TotalVariation(1e-4)
    else:
        optimiser = Adam(lr=0.4, signed=setting.signed, schedule=linear)
        penalty = TotalVariation(0.5, relative=True)
    method = inverting_gradients(steps=setting.steps).revised(
        lambda recipe: replace(recipe, distance=distance, optimiser=optimiser, penalties=(penalty,))
    )
    began = time.process_time()
    return method.reconstruct(seen, seed), (time.process_time() - began) / len(victims)


def run(setting: Setting, images: Sequence[int], *, seed: int, out: Path) -> None:
    """Attack the images that are missing in this row and add a line for each."""
    victims = [ls.data.load("cifar10", indices=[index]) for index in images]
    found, seconds = attack(setting, victims, seed)
    with out.open("a") as stream:
        for index, batch, one in zip(images, victims, found, strict=True):
            line = asdict(setting) | {
                "image": index,
                "seed": seed,
                "psnr": float(ls.score(one, batch).psnr[0]),
                "loss": one.loss,
                "status": str(one.status),
                "seconds": round(seconds, 1),
            }
            stream.write(json.dumps(line) + "\n")


def load(out: Path) -> dict[Setting, dict[tuple[int, int], float]]:
    """PSNR by setting, then by image and seed."""
    rows: dict[Setting, dict[tuple[int, int], float]] = {}
    for text in out.read_text().splitlines() if out.exists() else ():
        line = json.loads(text)
        key = Setting(*(line[name] for name in ("mode", "signed", "beta", "batch_norm", "schedule", "steps")))
        rows.setdefault(key, {})[line["image"], line["seed"]] = line["psnr"]
    return rows


def table(rows: dict[Setting, dict[tuple[int, int], float]]) -> Iterator[str]:
    """One line a setting: mean, median, then each image."""
    for key in sorted(rows, key=lambda k: (k.steps, k.mode, not k.signed, k.batch_norm, k.beta)):
        values = [rows[key][place] for place in sorted(rows[key])]
        each = " ".join(f"{value:5.1f}" for value in values)
        signs = "signed" if key.signed else "plain"
        yield (
            f"{key.schedule:5s} {key.steps:5d} steps  {key.mode:5s}  {signs:6s}  {key.batch_norm:8s}  β={key.beta:<5g} "
            f"mean {statistics.mean(values):5.2f} median {statistics.median(values):5.2f}  | {each}"
        )


def main() -> None:
    """Run what is missing, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--schedule", default="short", choices=("short", "paper"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, nargs="+", default=IMAGES)
    parser.add_argument("--modes", nargs="+", default=("eval", "train"))
    parser.add_argument("--signed", nargs="+", default=("yes", "no"), choices=("yes", "no"))
    parser.add_argument("--betas", type=float, nargs="+", default=(1, 2, 10, 50))
    parser.add_argument("--norms", nargs="+", default=("as-conv", "mean", "one", "excluded"))
    parser.add_argument("--print-only", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    signs = [word == "yes" for word in chosen.signed]
    grid = settings(chosen.modes, signs, chosen.betas, chosen.norms, schedule=chosen.schedule, steps=chosen.steps)
    for setting in () if chosen.print_only else grid:
        done = load(chosen.out).get(setting, {})
        missing = [index for index in chosen.images if (index, chosen.seed) not in done]
        if missing:
            run(setting, missing, seed=chosen.seed, out=chosen.out)
            print(next(table({setting: load(chosen.out)[setting]})), flush=True)
    print("\n".join(table(load(chosen.out))))


if __name__ == "__main__":
    main()
