"""Distances of GRNN: the one its code computes, and the Wasserstein distance it is named after.

The paper adds a Wasserstein distance to the squared error. The authors' code computes ‖d‖₂ under that name, without
sorting anything. The true distance between the values of two gradients is blind to where a value stands; it is here so
that the difference can be measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.matching.distances.distance import Distance, Grouped, flat, spread


@dataclass(frozen=True)
class SquaredPlusNorm(Distance):
    """‖d‖² + ‖d‖ over all tensors taken as one vector d = g − t.

    Far away the square rules; near the match the norm keeps the slope at one where that of the square vanishes.
    """

    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Return ‖d‖² + ‖d‖ per group."""
        norm = _norm({name: found[name] - target[name] for name in target})
        return norm.square() + norm

    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """Cotangent (2 + 1/‖d‖) d, zero where the gradients are equal."""
        gaps = {name: found[name] - target[name] for name in target}
        norm = _norm(gaps)
        factor = 2 + 1 / torch.where(norm > 0, norm, torch.ones_like(norm))
        return norm.square() + norm, {name: gap.mul_(spread(factor, gap)) for name, gap in gaps.items()}


@dataclass(frozen=True)
class Wasserstein(Distance):
    """W₁ between the values of two gradients: mean |sort(g) − sort(t)|, plus ‖g − t‖² where `squared`.

    In one dimension the best transport pairs values in order. Alone it cannot tell a gradient from a shuffled one.
    """

    squared: bool = False

    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Return the distance per group, differentiable in `found`."""
        left, right = _vector(found, target), _vector(target, target)
        moved = (left.sort(1).values - right.sort(1).values).abs().mean(1)
        return moved + (left - right).square().sum(1) if self.squared else moved

    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """Each value is pulled towards its partner in order: sign(sorted gap) / size, put back in its place."""
        left, right = _vector(found, target), _vector(target, target)
        ordered, places = left.sort(1)
        gaps = ordered - right.sort(1).values
        value = gaps.abs().mean(1)
        pulled = torch.zeros_like(left).scatter_(1, places, gaps.sign() / left.shape[1])
        if self.squared:
            value = value + (left - right).square().sum(1)
            pulled = pulled + 2 * (left - right)
        sizes = [target[name][0].numel() for name in target]
        parts = zip(target, pulled.split(sizes, dim=1), strict=True)
        return value, {name: part.reshape(found[name].shape) for name, part in parts}


def _norm(tensors: Grouped) -> Tensor:
    # vector_norm has a zero derivative at zero, where a plain square root has none.
    parts = [torch.linalg.vector_norm(flat(value), dim=1) for value in tensors.values()]
    return torch.linalg.vector_norm(torch.stack(parts, dim=1), dim=1)


def _vector(tensors: Grouped, names: Grouped) -> Tensor:
    return torch.cat([flat(tensors[name]) for name in names], dim=1)
