"""Distances of someone who knows how an update was compressed before it was shared."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.matching.distances.distance import DistanceWrapper, Grouped, differentiate, flat, norm_of, spread
from leakscope.matching.distances.rescaled import Weighed


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
class Rounded(Weighed):
    """The base distance with tensors weighed by how finely they were rounded: by Δ⁻ᵖ for steps of Δ.

    Random rounding errs by up to Δ, so that p = 1 counts every tensor by its precision. Where rounding is fine, errors
    hardly matter, and weights that differ by far only make the search harder: p falls from 1, where half of the shared
    entries or more were rounded to zero, to ½, where a quarter was. Δ is ‖t‖ over the `levels`, or the smallest
    entry other than zero where that is less: rounding up makes ‖t‖ longer.

    Passing candidates through the rounding instead would compare one draw with another: its expectation is g itself.
    """

    levels: int

    def gains(self, target: Grouped) -> dict[str, Tensor]:
        """Δ⁻ᵖ per tensor and group, in units of the whole update; a tensor of zeros was not rounded."""
        zeros = torch.stack([flat(value == 0).sum(1) for value in target.values()]).sum(0)
        entries = sum(flat(value).shape[1] for value in target.values())
        power = (2 * zeros / entries).clamp(0.5, 1.0)
        whole = norm_of(target, target)
        return {name: self._step(flat(value), whole).pow(-power) for name, value in target.items()}

    def _step(self, value: Tensor, whole: Tensor) -> Tensor:
        sizes = value.abs()
        smallest = sizes.masked_fill(sizes == 0, torch.inf).amin(1)
        step = torch.minimum(smallest, torch.linalg.vector_norm(value, dim=1) / self.levels) / whole
        return torch.where(step > 0, step, 1.0)
