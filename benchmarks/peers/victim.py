"""One victim as a file: network weights, private images and labels, the same for both sides.

Run as a script it writes victims:

    python victim.py --architecture convnet --index 0 --batch 1 out.npz
    python victim.py --architecture resnet18 --normalised no --split train --indices 4001 4002 out.npz
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import networks


@dataclass(frozen=True)
class Local:
    """Local SGD: `steps` steps of `batch` images each, in order."""

    steps: int
    batch: int
    lr: float

    def order(self) -> list[slice]:
        """Return the images of every step; each image is used once."""
        return [slice(step * self.batch, (step + 1) * self.batch) for step in range(self.steps)]


def add_local(parser: argparse.ArgumentParser) -> None:
    """Add the options of a client that trains before it shares."""
    parser.add_argument("--local-steps", type=int, help="steps of local SGD; one gradient when absent")
    parser.add_argument("--local-batch", type=int, default=1, help="images in one local step")
    parser.add_argument("--local-lr", type=float, default=1e-4)


def local_training(args: argparse.Namespace) -> Local | None:
    """Return the local training the options of `add_local` ask for."""
    return None if args.local_steps is None else Local(args.local_steps, args.local_batch, args.local_lr)


@dataclass(frozen=True)
class Victim:
    """`images` [n, 3, 32, 32] in [0, 1]; `parameters` and `buffers` by name, in the network's order.

    `normalised` says whether the pixels are normalised before the network; None is the architecture's own habit.
    """

    architecture: str
    images: Tensor
    labels: Tensor
    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]
    normalised: bool | None = None

    @property
    def constants(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation of the pixels, one per channel."""
        return networks.normalisation(self.architecture, normalised=self.normalised)

    def normalise(self, images: Tensor) -> Tensor:
        """Return what the network takes for these images."""
        mean, std = (images.new_tensor(values)[None, :, None, None] for values in self.constants)
        return (images - mean) / std

    def network(self) -> nn.Module:
        """Return the plain torch network with these weights, in evaluation mode."""
        model = networks.build(self.architecture)
        model.load_state_dict({**self.parameters, **self.buffers})
        return model.eval()

    def save(self, path: Path) -> None:
        """Write everything to one uncompressed .npz."""
        meta = {
            "architecture": self.architecture,
            "normalised": self.normalised,
            "parameters": [*self.parameters],
            "buffers": [*self.buffers],
        }
        arrays = {f"w:{name}": value.numpy() for name, value in {**self.parameters, **self.buffers}.items()}
        np.savez(
            path,
            meta=json.dumps(meta),
            images=self.images.numpy(),
            labels=self.labels.numpy(),
            allow_pickle=False,
            **arrays,
        )


def load(path: Path) -> Victim:
    """Read what `Victim.save` wrote."""
    with np.load(path) as file:
        meta = json.loads(str(file["meta"]))

        def weights(kind: str) -> dict[str, Tensor]:
            return {name: torch.from_numpy(file[f"w:{name}"]) for name in meta[kind]}

        return Victim(
            architecture=meta["architecture"],
            images=torch.from_numpy(file["images"]),
            labels=torch.from_numpy(file["labels"]),
            parameters=weights("parameters"),
            buffers=weights("buffers"),
            normalised=meta.get("normalised"),
        )


def make(
    architecture: str, *, indices: list[int], seed: int, split: str = "test", normalised: bool | None = None
) -> Victim:
    """Return CIFAR-10 images `indices` behind an untrained network of `seed`."""
    path = data_folder() / "cifar10.npz"
    if not path.is_file():
        raise SystemExit(f"CIFAR-10 not found as {path}; set LEAKSCOPE_DATA to the folder that holds cifar10.npz")
    with np.load(path) as file:
        pixels, labels = file[f"x_{split}"][indices], file[f"y_{split}"][indices]
    model = networks.build(architecture, seed=seed)
    return Victim(
        architecture=architecture,
        images=torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(255).contiguous(),
        labels=torch.from_numpy(labels.astype(np.int64)).reshape(-1),
        parameters={name: value.detach() for name, value in model.named_parameters()},
        buffers=dict(model.named_buffers()),
        normalised=normalised,
    )


def data_folder() -> Path:
    """Return the folder named by LEAKSCOPE_DATA, or the one beside the project."""
    project = Path(__file__).resolve().parents[2]
    return Path(os.environ.get("LEAKSCOPE_DATA", project.parent / "shared" / "data"))


def main() -> None:
    """Write one victim."""
    parser = argparse.ArgumentParser(description="Write one victim for the comparison.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--architecture", choices=sorted(networks.ARCHITECTURES), default="convnet")
    parser.add_argument("--normalised", choices=("yes", "no"), help="whether pixels are; the network's habit if absent")
    parser.add_argument("--split", choices=("train", "test"), default="test")
    parser.add_argument("--index", type=int, default=0, help="first image")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--indices", type=int, nargs="+", help="the images themselves, in place of first and number")
    parser.add_argument("--seed", type=int, default=0, help="of the network's weights")
    args = parser.parse_args()
    indices = args.indices or list(range(args.index, args.index + args.batch))
    normalised = None if args.normalised is None else args.normalised == "yes"
    made = make(args.architecture, indices=indices, seed=args.seed, split=args.split, normalised=normalised)
    made.save(args.out)


if __name__ == "__main__":
    main()
