"""Distances of GGL: a mean over tensors, and the defence that the update shows done to candidates too.

Nothing is told to the attacker: bound, sparsity and mask are estimated from what was observed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.matching.distances.distance import (
    Distance,
    DistanceWrapper,
    Grouped,
    differentiate,
    flat,
    norm_of,
    scale_to_unit,
    spread,
)


@dataclass(frozen=True)
class PerTensor(DistanceWrapper):
    """The base distance divided by the number of tensors: Σ‖g − t‖² / #tensors for SquaredL2."""

    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Return the mean per group."""
        return self.base.value(found, target) / len(target)

    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """The base cotangent over the same number."""
        value, pulled = self.base.value_and_cotangent(found, target)
        return value / len(target), {name: one / len(target) for name, one in pulled.items()}

    def masked(self) -> Distance:
        """What was zeroed in the update is zeroed in candidates by their own sizes."""
        return Sparsified(self)

    def clipped(self) -> Distance:
        """The bound comes after the sparsity, should both be known."""
        return ClippedFirst(self)


@dataclass(frozen=True)
class Clipped(DistanceWrapper):
    """The base distance after clipping the candidate's gradient to the observed norm.

    The attacker who knows of clipping knows that the observed norm is the bound, or below it.
    Both sides are measured in units of that norm: a tight bound would otherwise shrink the
    objective below what an optimiser takes for zero.
    """

    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Distance between the clipped candidate and the observation."""
        return self.base.value(*self._clip(found, target))

    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """Cotangent by automatic differentiation of the clipping alone."""
        return differentiate(self, found, target)

    @staticmethod
    def _clip(found: Grouped, target: Grouped) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        found_norm, bound = norm_of(found, target), norm_of(target, target)
        # min(1, bound/‖g‖) in units of the bound.
        factor = 1 / torch.maximum(found_norm, bound)
        return (
            {name: found[name] * spread(factor, found[name]) for name in target},
            scale_to_unit(target, target),
        )


@dataclass(frozen=True)
class ClippedFirst(Clipped):
    """Clipping inside the sparsity: scaled to the observed norm, a pruned gradient is exact.

    Whichever of the two the client did first.
    """

    def masked(self) -> Distance:
        """Sparsity goes around the bound."""
        return Sparsified(self)

    def clipped(self) -> Distance:
        """It is known already."""
        return self


@dataclass(frozen=True)
class Sparsified(DistanceWrapper):
    """The base distance after zeroing as much of the candidate's gradient as was zeroed in the update.

    Tensor by tensor: columns of a matrix that are zero throughout were masked and are masked
    here; of the rest the smallest entries go, as many as the update lacks. A pruned update also
    says which entries were small, and this makes use of it; a mask alone would not.
    """

    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Distance between equally sparse gradients."""
        return self.base.value(self._sparsify(found, target), target)

    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """The base cotangent, zero where the candidate's gradient was zeroed."""
        kept = {name: _kept(found[name], target[name]) for name in target}
        thin = {name: found[name] * kept[name] for name in target}
        value, pulled = self.base.value_and_cotangent(thin, target)
        return value, {name: pulled[name] * kept[name] for name in pulled}

    def view(self, found: Grouped, target: Grouped) -> Grouped:
        """What is left of the candidate's gradient."""
        return self.base.view(self._sparsify(found, target), target)

    def masked(self) -> Distance:
        """It is known already."""
        return self

    def clipped(self) -> Distance:
        """The bound goes inside."""
        return Sparsified(self.base.clipped())

    @staticmethod
    def _sparsify(found: Grouped, target: Grouped) -> dict[str, Tensor]:
        return {name: found[name] * _kept(found[name], target[name]) for name in target}


def _kept(found: Tensor, target: Tensor) -> Tensor:
    """1 where an entry stays, 0 where it goes, per group; constant in `found`."""
    sizes = flat((found.detach() * _columns(target)).abs())
    missing = flat(target == 0).sum(1).tolist()
    kept = torch.ones_like(sizes)
    for group, count in enumerate(missing):
        if count:
            # Equal entries beyond the count go as well; only zeros are equal in practice.
            kept[group] = sizes[group] > sizes[group].kthvalue(count).values
    return kept.reshape(found.shape)


def _columns(target: Tensor) -> Tensor:
    """1 for the columns of a matrix that were shared, 0 for those that are zero throughout."""
    if target.ndim != 3:
        return target.new_ones(())
    return (target != 0).any(dim=1, keepdim=True).to(target.dtype)
