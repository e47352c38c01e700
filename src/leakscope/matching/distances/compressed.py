"""Distances of someone who knows how an update was compressed before it was shared."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.matching.distances.distance import Distance, DistanceWrapper, Grouped, differentiate, flat, spread


@dataclass(frozen=True)
class SoftSigned(DistanceWrapper):
    """The base distance after a soft sign of the candidate's gradient: g / √(g² + (w·mean|g|)²).

    The sign itself has no derivative. `width` w says how far from zero an entry must be to count as decided, in units
    of its tensor's mean magnitude. With `scaled` signs are multiplied by that magnitude, as the client did.
    """

    scaled: bool = True
    width: float = 0.1

    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Distance between soft signs and the observed ones."""
        return self.base.value({name: self._soften(found[name]) for name in target}, target)

    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """Cotangent by automatic differentiation of the softening."""
        return differentiate(self, found, target)

    def view(self, found: Grouped, target: Grouped) -> Grouped:
        """The soft signs."""
        return self.base.view({name: self._soften(found[name]) for name in target}, target)

    def _soften(self, value: Tensor) -> Tensor:
        size = spread(flat(value).abs().mean(1).clamp_min(1e-30), value)
        soft = value * torch.rsqrt(value.square() + (self.width * size).square())
        return soft * size if self.scaled else soft


@dataclass(frozen=True)
class RoundingLikelihood(Distance):
    """Σ −Δ·log(1 − |g − t|/Δ) over Σ|t|: how unlikely random rounding in steps of Δ makes t out of g.

    Rounding up or down with the probability of the fraction gives t with probability 1 − |g − t|/Δ, and never anything
    a whole step away. Δ of a tensor is read off its smallest entry other than zero. Where 1 − |g − t|/Δ is below
    `least` the logarithm goes on as its Taylor polynomial of second order, so that candidates far away find their way.

    Tensors count by Δ: by the likelihood alone those of the finest steps would hold all others up.
    Passing candidates through the rounding instead would compare one draw with another: its expectation is g itself.
    """

    least: float = 0.1

    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Return the sum over all tensors, per group, in units of what was shared."""
        total = torch.stack([self._unlikely(flat(found[name]), flat(target[name])) for name in target]).sum(0)
        shared = torch.stack([flat(value).abs().sum(1) for value in target.values()]).sum(0)
        return total / shared.clamp_min(1e-30)

    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """Cotangent by automatic differentiation."""
        return differentiate(self, found, target)

    def _unlikely(self, found: Tensor, target: Tensor) -> Tensor:
        sizes = target.abs()
        # A step that is too long is safe: it excludes less. Infinite where a tensor is all zeros.
        step = sizes.masked_fill(sizes == 0, torch.inf).amin(1, keepdim=True)
        chance = 1 - (found - target).abs() / step
        below = (self.least - chance).clamp_min(0) / self.least
        surprise = -chance.clamp_min(self.least).log() + below + below.square() / 2
        return (step.masked_fill(step == torch.inf, 0) * surprise).sum(1)
