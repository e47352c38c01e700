"""One victim as a file: network weights, private images and labels, the same for both sides.

Run as a script it writes victims:  python victim.py --architecture convnet --index 0 --batch 1 out.npz
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
    """`images` [n, 3, 32, 32] in [0, 1]; `parameters` and `buffers` by name, in the network's order."""

    architecture: str
    images: Tensor
    labels: Tensor
    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]

    def network(self) -> nn.Module:
        """Return the plain torch network with these weights, in evaluation mode."""
        model = networks.build(self.architecture)
        model.load_state_dict({**self.parameters, **self.buffers})
        return model.eval()

    def save(self, path: Path) -> None:
        """Write everything to one uncompressed .npz."""
        meta = {"architecture": self.architecture, "parameters": [*self.parameters], "buffers": [*self.buffers]}
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
        )


def make(architecture: str, *, indices: list[int], seed: int) -> Victim:
    """Return CIFAR-10 test images `indices` behind an untrained network of `seed`."""
    path = data_folder() / "cifar10.npz"
    if not path.is_file():
        raise SystemExit(f"CIFAR-10 not found as {path}; set LEAKSCOPE_DATA to the folder that holds cifar10.npz")
    with np.load(path) as file:
        pixels, labels = file["x_test"][indices], file["y_test"][indices]
    model = networks.build(architecture, seed=seed)
    return Victim(
        architecture=architecture,
        images=torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(255).contiguous(),
        labels=torch.from_numpy(labels.astype(np.int64)).reshape(-1),
        parameters={name: value.detach() for name, value in model.named_parameters()},
        buffers=dict(model.named_buffers()),
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
    parser.add_argument("--index", type=int, default=0, help="first test image")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the network's weights")
    args = parser.parse_args()
    indices = list(range(args.index, args.index + args.batch))
    make(args.architecture, indices=indices, seed=args.seed).save(args.out)


if __name__ == "__main__":
    main()
