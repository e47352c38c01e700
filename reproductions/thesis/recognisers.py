"""A small densely connected network for faces: DenseNet's stand-in where ResNet-20 is ResNet-18's."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leakscope.rng import child_seed

STEM = 16
GROWTH = 12


class DenseLayer(nn.Module):
    """What came in, and `growth` new channels made of all of it: Huang et al., CVPR 2017."""

    def __init__(self, channels: int, growth: int) -> None:
        """Normalise, rectify, convolve."""
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.act = nn.ReLU()
        self.conv = nn.Conv2d(channels, growth, 3, padding=1, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Append the new channels."""
        return torch.cat([inputs, self.conv(self.act(self.norm(inputs)))], dim=1)


def small_densenet(
    *, seed: int, channels: int, side: int, classes: int, blocks: int = 3, layers: int = 4, growth: int = GROWTH
) -> nn.Module:
    """`blocks` of `layers` densely connected convolutions, half the side after each but the last; any `side`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(child_seed(seed, "small densenet"))
        width = STEM
        parts: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False)]
        for block in range(blocks):
            for _ in range(layers):
                parts.append(DenseLayer(width, growth))
                width += growth
            if block < blocks - 1:
                parts += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1, bias=False)]
                parts.append(nn.AvgPool2d(2, ceil_mode=True))
                width //= 2
        parts += [nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)]
        return nn.Sequential(*parts).eval()
