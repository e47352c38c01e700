"""Small networks for the smoke scale, and those that a paper uses and leakscope has no name for."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from leakscope.rng import child_seed


def small_convnet(
    *, seed: int, channels: int, side: int, classes: int, widths: tuple[int, ...] = (6, 8, 8), stride: int = 2
) -> nn.Module:
    """Convolutions with ReLU and a linear layer: a few hundred weights on 8 × 8 pictures."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(child_seed(seed, "small convnet"))
        layers: list[nn.Module] = []
        for before, behind in pairwise((channels, *widths)):
            layers += [nn.Conv2d(before, behind, 3, stride=stride, padding=1), nn.ReLU()]
            side = -(-side // stride)
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(widths[-1] * side * side, classes)).eval()
