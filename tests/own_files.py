"""A folder as a user has it: a module of networks and data, photographs, checkpoints, tables."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn

SOURCE = '''
from dataclasses import dataclass

import torch
from torch import Tensor, nn

print("loading the module")  # must not end up in --json


@dataclass
class Answer:
    logits: Tensor


class Photographs(nn.Module):
    """A thousand outputs, as of a pretrained network, in an object with logits."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 5, stride=4)
        self.fc = nn.Linear(4 * 7 * 7, 1000)

    def forward(self, x):
        return Answer(self.fc(torch.sigmoid(self.conv(x)).flatten(1)))


def photographs():
    torch.manual_seed(0)
    return Photographs()


def rows():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Sigmoid(), nn.Linear(16, 3))


def wide():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 20, 8), nn.Sigmoid(), nn.Linear(8, 2))


def table():
    rng = torch.Generator().manual_seed(1)
    sizes = {"train": 40, "test": 12}
    return {split: (torch.randn(n, 6, generator=rng), torch.arange(n) % 3) for split, n in sizes.items()}


def fails():
    raise KeyError("no such layer")


def needs(depth):
    return rows()


def nothing():
    return 3


def unseeded():
    return nn.Linear(6, 3)


def ragged():
    return [(torch.zeros(6), 0), (torch.zeros(5), 1)]


class Ragged(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, place):
        return torch.zeros(6 - place), place


def ragged_set():
    return Ragged()


def restless():
    return torch.randn(8, 6), torch.arange(8) % 3
'''
_numbers = itertools.count()


def write_module(folder: Path, source: str = SOURCE) -> str:
    """Write a module with a name that no other test has imported."""
    name = f"own_module_{next(_numbers)}"
    assert name not in sys.modules
    (folder / f"{name}.py").write_text(source)
    return name


def draw_photographs(folder: Path, *, each: int = 3) -> Path:
    """Photographs of two classes, all of different size."""
    rng = np.random.default_rng(0)
    for place, kind in enumerate(("cats", "dogs")):
        (folder / kind).mkdir(parents=True)
        for number in range(each):
            height, width = 40 + number, 50 + 3 * number
            picture = Image.fromarray(rng.integers(0, 80, (height, width, 3), dtype=np.uint8))
            ImageDraw.Draw(picture).ellipse((5, 5, 30, 30 + number), fill=(250, 120 * place, 40))
            picture.save(folder / kind / f"{number}.png")
    return folder


def save_wrapped(network: nn.Module, path: Path) -> Path:
    """A checkpoint as a wrapped model writes it: every name behind "module."."""
    torch.save({f"module.{name}": value for name, value in network.state_dict().items()}, path)
    return path


def save_rows(path: Path, *, count: int = 12) -> Path:
    """A table of six numbers a row, three classes, without a range."""
    values = np.random.default_rng(0).normal(size=(count, 6)).astype(np.float32)
    np.savez(path, inputs=values, targets=np.arange(count) % 3)
    return path
