"""Gradient pruning: share only the largest entries of each tensor."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from leakscope.attack import Attack
from leakscope.defence import UpdateDefence
from leakscope.option_ranges import check_defence_option
from leakscope.types import Tensors

PAPER = "Lin et al.: Deep Gradient Compression, ICLR 2018; as a defence in Zhu, Liu, Han, NeurIPS 2019"


@dataclass(frozen=True)
class Prune(UpdateDefence):
    """Zero the `fraction` of entries smallest in magnitude, tensor by tensor."""

    fraction: float
    name: str = "prune"
    paper: str = PAPER

    def __post_init__(self) -> None:
        check_defence_option("prune", "fraction", self.fraction)

    def adapt(self, attack: Attack) -> Attack:
        """The attacker reads the mask off the zeros."""
        if not self.fraction:
            return attack
        return attack.revised(lambda recipe: replace(recipe, distance=recipe.distance.masked()))

    def rewrite(self, tensors: Tensors, rng: Generator) -> dict[str, Tensor]:
        """Zero the smallest entries of each tensor."""
        return {name: _zero_smallest(value, self.fraction) for name, value in tensors.items()}


def prune(fraction: float = 0.9) -> Prune:
    """Share only the largest 1 − `fraction` of the entries of each tensor."""
    return Prune(fraction)


def _zero_smallest(value: Tensor, fraction: float) -> Tensor:
    # 0.29 · 100 is a hair below 29 in floating point.
    count = int(fraction * value.numel() + 1e-9)
    if count == 0:
        return value
    # Exactly `count` entries, ties broken by position: a threshold would zero more.
    order = value.abs().reshape(-1).argsort(stable=True)[:count]
    kept = torch.ones(value.numel(), dtype=torch.bool, device=value.device)
    kept[order] = False
    return value * kept.reshape(value.shape)
