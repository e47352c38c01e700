"""Distances between rescaled tensors: to unit length, or each by a factor of its own."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.matching.distances.distance import DistanceWrapper, Grouped, differentiate, flat, scale_to_unit, spread

# Signal over noise below which rounds do not differ: all that is left is the error of the estimate.
_DROWNED = 1e-3


@dataclass(frozen=True)
class Direction(DistanceWrapper):
    """The base distance between unit vectors: g/‖g‖ and t/‖t‖.

    For a delta whose rate and steps are unknown nothing but the direction means anything.
    """

    @property
    def is_scale_free(self) -> bool:
        """Lengths are divided out."""
        return True

    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Distance between the directions."""
        return self.base.value(scale_to_unit(found, target), scale_to_unit(target, target))

    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """Cotangent by automatic differentiation of the scaling alone."""
        return differentiate(self, found, target)


class Weighed(DistanceWrapper):
    """The base distance between tensors that were each multiplied by a factor of their own."""

    @abstractmethod
    def gains(self, target: Grouped) -> dict[str, Tensor]:
        """The factor of every tensor, per group."""

    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Distance between the weighed tensors."""
        gains = self.gains(target)
        return self.base.value(_weigh(found, gains), _weigh(target, gains))

    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """The base cotangent, weighed once more."""
        gains = self.gains(target)
        value, pulled = self.base.value_and_cotangent(_weigh(found, gains), _weigh(target, gains))
        return value, _weigh(pulled, gains)


@dataclass(frozen=True)
class Denoised(Weighed):
    """The base distance with noisy tensors weighed down, and noisy rounds.

    The attacker who knows the noise's variance v weighs tensor t by the share of its energy
    that is signal, √(1 − v·n/‖t‖²) for n shared entries: a tensor drowned in noise only misleads.
    `variance` is in the units of the target, so what changes those goes inside: see `Recipe.distance_to`.
    `relative` is the variance of noise in units of its tensor's own; that of the tensor with its noise is
    1 + `relative` times as large, so that the noise has relative/(1 + relative) of what is observed.

    Weighing keeps a search without a prior from fitting noise. Where a prior does that, it only takes away what a noisy
    tensor still tells: `weighs_tensors` is False there, and rounds alone are weighed.
    """

    variance: float
    relative: float = 0.0
    weighs_tensors: bool = True

    def gains(self, target: Grouped) -> dict[str, Tensor]:
        """√ of the share of signal, per tensor and group; 1 where tensors are not weighed."""
        if not self.weighs_tensors:
            return {name: torch.ones_like(flat(value)[:, 0]) for name, value in target.items()}
        gains = {}
        for name, value in target.items():
            energy = flat(value).square().sum(1).clamp_min(1e-30)
            # Never quite zero: where everything is noise the direction must stay defined.
            gains[name] = (1 - self._per_entry(value) * _count_shared(value) / energy).clamp_min(1e-4).sqrt()
        return gains

    def clearness(self, target: Grouped) -> Tensor:
        """Energy of the signal over that of the noise, where the base divides by the length of what was observed.

        Of independent noises the sum of squared errors, each over its variance, is the best to minimise. A distance
        in units of ‖t‖² has lost that factor; one in the units of t has it, with the same variance in all rounds.
        """
        if not self.base.is_relative:
            return super().clearness(target)
        energy = sum(flat(value).square().sum(1).double() for value in target.values())
        noise = sum((self._per_entry(value) * _count_shared(value)).double() for value in target.values())
        return ((energy - noise) / torch.as_tensor(noise).clamp_min(1e-30)).clamp_min(_DROWNED)

    def _per_entry(self, value: Tensor) -> Tensor:
        """Variance of an entry's noise, per group."""
        return self.variance + self.relative / (1 + self.relative) * flat(value).var(1, correction=0)


def _weigh(values: Grouped, gains: Grouped) -> dict[str, Tensor]:
    return {name: values[name] * spread(gain, values[name]) for name, gain in gains.items()}


def _count_shared(value: Tensor) -> Tensor:
    """Entries per group that were not zeroed before sharing: those carry the noise."""
    return flat(value != 0).sum(1)
