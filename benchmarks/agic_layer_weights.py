"""Do AGIC's layer weights help? PSNR by ratio β, sign of the steps, rate, normalising layer and training.

    LEAKSCOPE_DATA=<folder> python benchmarks/agic_layer_weights.py --out table.jsonl --betas 1 50 [...]

CIFAR-10 test images behind one gradient of a residual network with stored statistics, labels known. β = 1 is the plain
cosine of Inverting Gradients; any other β has the ReLU modifier too, as published. Rates: `held` is Adam at 0.1 as in
a run of 6,000 steps, of which the first 2,249 have the full rate; `drops` is that run shortened, rate drops included;
`late` holds 0.1 for half of the run and then falls to zero; all three with an absolute total variation of 1e-4.
`accelerated` is leakscope's signed schedule. One line of JSON a victim, with the PSNR at several places of the run;
what the file already holds is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn

import leakscope as ls
from leakscope.attacks.agic import Agic, agic
from leakscope.matching.optimisers import Adam, constant, falling_late, three_drops
from leakscope.matching.optimisers.first_order import Schedule
from leakscope.networks import NetworkKind
from leakscope.types import Batch, Reconstruction, Status

PUBLISHED_STEPS = 6_000
PLACES = (100, 300, 600, 1_000, 2_000)


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    network: str
    normalised: bool
    signed: bool
    rate: str
    beta: float
    steps: int
    size: int
    tv: float | None = None


@dataclass(frozen=True)
class Beginning:
    """The beginning of a longer run's schedule."""

    schedule: Schedule
    steps: int

    def __call__(self, step: int, steps: int) -> float:
        """The factor at this step of the longer run."""
        return self.schedule(step, self.steps)

    def least_steps(self, kind: NetworkKind) -> int:
        """Those of a rate that is held: the drops of the longer run are not reached."""
        return constant.least_steps(kind)


RATES: dict[str, Schedule] = {
    "held": Beginning(three_drops, PUBLISHED_STEPS),
    "drops": three_drops,
    "late": falling_late,
}


def settings(chosen: argparse.Namespace) -> Iterator[Setting]:
    """All combinations; the accelerated schedule is always signed."""
    for normalised, sign, rate, beta in product(chosen.normalised, chosen.signed, chosen.rates, chosen.betas):
        if sign == "yes" or rate != "accelerated":
            signed, own = sign == "yes", normalised == "yes"
            yield Setting(chosen.network, own, signed, rate, beta, chosen.steps, chosen.size, chosen.tv)


def network(setting: Setting) -> nn.Module:
    """An untrained ResNet20-4, or `resnet20-trained`: the trained ResNet-20 in the folder of data."""
    normalise = "cifar10" if setting.normalised else None
    if setting.network != "resnet20-trained":
        return ls.models.build(setting.network, num_classes=10, normalise=normalise, seed=0).eval()
    model = ls.models.build("resnet20", num_classes=10, normalise="imagenet" if setting.normalised else None)
    return ls.models.load_weights(model, Path(os.environ["LEAKSCOPE_DATA"]) / "weights/cifar10_resnet20.safetensors")


def attack(setting: Setting) -> Agic:
    """AGIC as this row asks for it."""
    found = agic(
        beta=setting.beta,
        relu_modifier=setting.beta != 1,
        schedule="accelerated" if setting.rate == "accelerated" else "paper",
        signed=setting.signed,
        steps=setting.steps,
        tv=setting.tv,
    )
    if setting.rate == "accelerated":
        return found
    optimiser = found.recipe.optimiser
    assert isinstance(optimiser, Adam)
    optimiser = replace(optimiser, schedule=RATES[setting.rate])
    return replace(found, recipe=replace(found.recipe, optimiser=optimiser))


def run(setting: Setting, image: int, *, seed: int) -> dict[str, object]:
    """Attack one batch; mean PSNR at some places of the run and at its end."""
    batch = ls.data.load("cifar10", indices=list(range(image, image + setting.size)))
    model = network(setting)
    seen = ls.observe(model, ls.share(model, batch), scenario="A", truth=batch)
    along: dict[str, float] = {}

    def watch(step: int, images: Tensor, _distances: Tensor) -> None:
        if step + 1 in PLACES and step + 1 < setting.steps:
            along[str(step + 1)] = psnr(images[0].detach(), batch)

    began = time.process_time()
    found = attack(setting).reconstruct(seen, seed, watch=watch, diagnosing=False)
    along[str(setting.steps)] = psnr(found.inputs, batch)
    seconds = round(time.process_time() - began)
    return {"psnr": along, "loss": found.loss, "status": str(found.status), "seconds": seconds}


def psnr(images: Tensor, batch: Batch) -> float:
    """Mean PSNR of a batch."""
    return float(ls.score(Reconstruction(images, batch.targets, 0.0, Status.OK), batch, metrics=["psnr"]).psnr.mean())


Rows = dict[Setting, dict[tuple[int, int], dict[str, float]]]


def load(out: Path) -> Rows:
    """PSNR along the run by setting, then by image and seed."""
    rows: Rows = {}
    for text in out.read_text().splitlines() if out.exists() else ():
        line = json.loads(text)
        key = Setting(**{field.name: line[field.name] for field in fields(Setting) if field.name in line})
        rows.setdefault(key, {})[line["image"], line["seed"]] = line["psnr"]
    return rows


def table(rows: Rows) -> Iterator[str]:
    """One line a setting: at every place the mean, then each image."""
    for key in sorted(
        rows, key=lambda k: (k.network, k.size, not k.normalised, k.signed, k.rate, k.steps, k.tv or 0, k.beta)
    ):
        found = [rows[key][place] for place in sorted(rows[key])]
        columns = [_column(place, [one[place] for one in found]) for place in found[0]]
        sign, layer = "signed" if key.signed else "unsigned", "normalised" if key.normalised else "as it is"
        what = f"{key.network} batch {key.size} {layer}, {sign}, {key.rate}, {key.steps} steps"
        weight = "" if key.tv is None else f", TV {key.tv:g}"
        yield f"{what}{weight}, β={key.beta:<3g} {'; '.join(columns)}"


def _column(place: str, values: Sequence[float]) -> str:
    return f"{place}: {statistics.mean(values):.1f} ({' '.join(f'{value:.1f}' for value in values)})"


def main() -> None:
    """Run what is missing, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--network", default="resnet20-4", choices=("resnet20-4", "resnet20", "resnet20-trained"))
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--size", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tv", type=float, help="weight of total variation in place of the schedule's own")
    parser.add_argument("--images", type=int, nargs="+", default=(700, 701))
    parser.add_argument("--normalised", nargs="+", default=("yes",), choices=("yes", "no"))
    parser.add_argument("--signed", nargs="+", default=("no",), choices=("yes", "no"))
    parser.add_argument("--rates", nargs="+", default=("held",), choices=(*RATES, "accelerated"))
    parser.add_argument("--betas", type=float, nargs="+", default=(1, 50))
    parser.add_argument("--print-only", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    images: list[int] = [] if chosen.print_only else list(chosen.images)
    for setting, image in [(one, image) for one in settings(chosen) for image in images]:
        if (image, chosen.seed) in load(chosen.out).get(setting, {}):
            continue
        line = asdict(setting) | {"image": image, "seed": chosen.seed} | run(setting, image, seed=chosen.seed)
        with chosen.out.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)
    print("\n".join(table(load(chosen.out))))


if __name__ == "__main__":
    main()
