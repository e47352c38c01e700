"""How well the statistics of a private batch are known, layer by layer: kept, of public inputs, from sent buffers.

    python benchmarks/batch_statistics.py [--network resnet20] [--batch 8] [--steps 1] [--lr 0.01] [--data cifar10]

For every batch-norm layer ‖found − true‖ / ‖true‖ of mean and variance together, true being what the layer sees of the
private batch before training; then the mean over layers. Running statistics are those after 20 batches of other inputs.
Without `--data` inputs are smooth noise. Nothing is attacked here.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope.client import share
from leakscope.data import load
from leakscope.models import build
from leakscope.networks import batch_statistics
from leakscope.observation import observe
from leakscope.rng import generator
from leakscope.types import Batch, LocalTraining, Tensors

WAYS = ("kept", "public", "sent")


def pictures(data: str | None, count: int) -> Tensor:
    """So many inputs [n, 3, 32, 32]: of a data set, or smooth noise."""
    if data is not None:
        return load(data, split="test", count=count).inputs
    coarse = torch.rand(count, 3, 8, 8, generator=generator(0, "pictures"))
    return functional.interpolate(coarse, size=32, mode="bilinear").clamp(0, 1)


def settle(model: nn.Module, inputs: Tensor) -> nn.Module:
    """The network with running statistics of other inputs, in training mode."""
    with torch.no_grad():
        for part in inputs.chunk(20):
            model.train()(part)
    return model


def find(model: nn.Module, private: Tensor, public: Tensor, local: LocalTraining | None) -> dict[str, Tensors]:
    """Statistics by each way."""
    batch = Batch(private, torch.arange(len(private)) % 10)
    kept = {name.replace("running_", ""): value for name, value in model.named_buffers() if "running_" in name}
    plain, whole = (share(model, batch, local=local, sends_buffers=sends) for sends in (False, True))
    seen = {
        "public": observe(model, plain, scenario="C", truth=batch, proxy=public),
        "sent": observe(model, whole, scenario="C", truth=batch),
    }
    return {"kept": kept} | {way: one.batch_statistics or {} for way, one in seen.items()}


def make_parser(about: str | None, *, batch: int) -> argparse.ArgumentParser:
    """Options for the network and the private batch."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="resnet20")
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--data")
    return parser


def main() -> None:
    """Print one line for each layer and one for their mean."""
    parser = make_parser(__doc__, batch=8)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.01)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    inputs = pictures(chosen.data, chosen.batch + 64 + 160)
    private, public, other = inputs.split([chosen.batch, 64, 160])
    model = settle(build(chosen.network, num_classes=10, in_channels=3, image_size=32, seed=0), other)
    local = LocalTraining(lr=chosen.lr, steps=chosen.steps, batch_size=max(2, chosen.batch // chosen.steps))
    true, found = batch_statistics(model, private), find(model, private, public, local)
    layers = [name.removesuffix(".mean") for name in true if name.endswith(".mean")]
    rows = {layer: [error(found[way], true, layer) for way in WAYS] for layer in layers}
    print(f"{'layer':28s}" + "".join(f"{way:>12s}" for way in WAYS))
    for layer, errors in rows.items():
        print(f"{layer:28s}" + "".join(f"{value:12.2e}" for value in errors))
    means = [sum(column) / len(rows) for column in zip(*rows.values(), strict=True)]
    print(f"{'mean over layers':28s}" + "".join(f"{value:12.2e}" for value in means))


def error(found: Tensors, true: Tensors, layer: str) -> float:
    """Relative error of a layer's mean and variance together."""
    pairs = [(found[f"{layer}.{part}"].double(), true[f"{layer}.{part}"].double()) for part in ("mean", "var")]
    apart, size = (torch.cat(list(side)).norm() for side in ([a - b for a, b in pairs], [b for _, b in pairs]))
    return float(apart / size)


if __name__ == "__main__":
    main()
