"""Distances of someone who knows how an update was compressed before it was shared."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.matching.distances.distance import DistanceWrapper, Grouped, differentiate, flat, spread
from leakscope.matching.distances.rescaled import Weighed


@dataclass(frozen=True)
class SoftSigned(DistanceWrapper):
    """The base distance after a soft sign of the candidate's gradient: g / √(g² + (w·mean|g|)²).

    The sign itself has no derivative. `width` w says how far from zero an entry must be to count as decided, in units of
    its tensor's mean magnitude. With `scaled` signs are multiplied by that magnitude, as the client did.
    """

    scaled: bool = True
    width: float = 0.3

    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Distance between soft signs and the observed ones."""
        return self.base.value({name: self._soften(found[name], target[name]) for name in target}, target)

    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """Cotangent by automatic differentiation of the softening."""
        return differentiate(self, found, target)

    def _soften(self, value: Tensor, target: Tensor) -> Tensor:
        size = spread(flat(value).abs().mean(1).clamp_min(1e-30), value)
        soft = value * torch.rsqrt(value.square() + (self.width * size).square())
        return soft * size if self.scaled else soft


@dataclass(frozen=True)
class Dequantised(Weighed):
    """The base distance with tensors weighed by how much of them is signal, which their levels tell exactly.

    Entries are whole multiples of ‖g‖/s for `levels` s, so that the length ‖g‖ before rounding can be read off the
    update; ‖g‖/‖t‖ is the share of signal in what was shared. Rounding is unbiased: the expectation of a candidate's
    rounded gradient is that gradient, and passing it through the same rounding would only add the noise of another draw.
    """

    levels: int

    def gains(self, target: Grouped) -> dict[str, Tensor]:
        """‖g‖/‖t‖ per tensor and group, at most 1."""
        return {name: self._gain(value) for name, value in target.items()}

    def _gain(self, value: Tensor) -> Tensor:
        sizes = flat(value).abs()
        # The smallest entry that is not zero is one step, nearly always.
        unit = sizes.masked_fill(sizes == 0, torch.inf).amin(1)
        length = torch.linalg.vector_norm(sizes, dim=1)
        return torch.where(length > 0, self.levels * unit / length, 1.0).clamp(1e-2, 1.0)
