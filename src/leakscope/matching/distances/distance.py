"""Axis 4: how far a candidate's gradient is from the observed one.

A distance works on groups: tensors carry a leading dimension of independent candidates, and
the value is one number per group. Besides the value it gives its cotangent ∂D/∂g in closed
form, which is all the structured route needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakscope.types import Observation

Grouped = Mapping[str, Tensor]


class Distance(ABC):
    """D(g, target) per group, and its derivative in g."""

    @abstractmethod
    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Return D, shape [groups], differentiable in `found`."""

    @abstractmethod
    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """Return D and ∂D/∂found."""

    @property
    def is_scale_free(self) -> bool:
        """Whether only the direction of a gradient matters."""
        return False

    @property
    def is_relative(self) -> bool:
        """Whether lengths are counted in units of the observed update's, so that a short one counts as a long one."""
        return self.is_scale_free

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the result should know of the comparison."""
        return ()

    def bound(self, seen: Observation) -> Distance:
        """The distance as it applies to `seen`: what it needs of the network or the update is read here."""
        return self

    def view(self, found: Grouped, target: Grouped) -> Grouped:
        """The part of a candidate's gradient that is compared, after what a known defence does to it."""
        return found

    def view_alone(self, found: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """As `view`, for one candidate without a dimension of groups."""
        grouped = ({name: values[name][None] for name in target} for values in (found, target))
        return {name: value[0] for name, value in self.view(*grouped).items()}

    def clearness(self, target: Grouped) -> Tensor:
        """What an update counts beside others of the same examples, per group; 1 where no noise is known of."""
        return torch.ones(len(next(iter(target.values()))), dtype=torch.float64)

    def masked(self) -> Distance:
        """The distance of someone who knows that entries were zeroed before sharing."""
        return Masked(self)

    def clipped(self) -> Distance:
        """The distance of someone who knows that the update was scaled down to a norm bound."""
        return self if self.is_scale_free else Shortened(self)


@dataclass(frozen=True)
class DistanceWrapper(Distance):
    """A distance that changes what another one compares."""

    base: Distance

    @property
    def is_scale_free(self) -> bool:
        """As the base."""
        return self.base.is_scale_free

    @property
    def is_relative(self) -> bool:
        """As the base."""
        return self.is_scale_free or self.base.is_relative

    @property
    def notes(self) -> tuple[str, ...]:
        """What the base has to say."""
        return self.base.notes

    def view(self, found: Grouped, target: Grouped) -> Grouped:
        """What the base compares."""
        return self.base.view(found, target)

    def bound(self, seen: Observation) -> Distance:
        """The same around the bound base."""
        return replace(self, base=self.base.bound(seen))


def flat(value: Tensor) -> Tensor:
    """View [groups, …] as [groups, numbers]."""
    return value.reshape(len(value), -1)


def spread(weight: Tensor, like: Tensor) -> Tensor:
    """Shape [groups] so that it multiplies [groups, …]."""
    return weight.reshape(-1, *[1] * (like.ndim - 1))


@dataclass(frozen=True)
class SquaredL2(Distance):
    """Σ ‖g − t‖²: DLG's distance, a sum and not a mean."""

    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Return Σ‖g − t‖² per group."""
        return _total([flat(found[name] - target[name]).square().sum(1) for name in target])

    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """Cotangent 2(g − t)."""
        gaps = {name: found[name] - target[name] for name in target}
        value = _total([flat(gap).square().sum(1) for gap in gaps.values()])
        return value, {name: gap.mul_(2) for name, gap in gaps.items()}


@dataclass(frozen=True)
class L1(Distance):
    """Σ |g − t|: robust against a few large errors, the right match for Laplacian noise."""

    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Return Σ|g − t| per group."""
        return _total([flat(found[name] - target[name]).abs().sum(1) for name in target])

    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """Cotangent sign(g − t)."""
        gaps = {name: found[name] - target[name] for name in target}
        value = _total([flat(gap).abs().sum(1) for gap in gaps.values()])
        return value, {name: gap.sign_() for name, gap in gaps.items()}


@dataclass(frozen=True)
class Cosine(Distance):
    """1 − ⟨g, t⟩ / (‖g‖‖t‖) over all tensors taken as one vector; blind to scale."""

    epsilon: float = 1e-12

    @property
    def is_scale_free(self) -> bool:
        """A cosine does not see lengths."""
        return True

    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Return one minus the cosine per group; rounding must not make it negative."""
        inner, found_norm, target_norm = self._parts(found, target)
        return (1 - inner / (found_norm * target_norm)).clamp_min(0)

    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """Cotangent (cos · g/‖g‖ − t/‖t‖) / ‖g‖."""
        inner, found_norm, target_norm = self._parts(found, target)
        cosine = inner / (found_norm * target_norm)
        along, against = cosine / found_norm.square(), -1 / (found_norm * target_norm)
        pulled = {
            name: torch.addcmul(found[name] * spread(along, found[name]), target[name], spread(against, found[name]))
            for name in target
        }
        return (1 - cosine).clamp_min(0), pulled

    def _parts(self, found: Grouped, target: Grouped) -> tuple[Tensor, Tensor, Tensor]:
        inner = _total([torch.linalg.vecdot(flat(found[name]), flat(target[name])) for name in target])
        return inner, self._norm(found, target), self._norm(target, target)

    def _norm(self, tensors: Grouped, names: Grouped) -> Tensor:
        squares = _total([torch.linalg.vecdot(flat(tensors[name]), flat(tensors[name])) for name in names])
        return squares.clamp_min(self.epsilon**2).sqrt()


@dataclass(frozen=True)
class Masked(DistanceWrapper):
    """The base distance on the entries that were not zeroed before sharing.

    The attacker who knows of pruning reads the mask off the update itself.
    """

    def view(self, found: Grouped, target: Grouped) -> Grouped:
        """The surviving entries of what the base compares."""
        return self.base.view(_mask(found, target), target)

    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Distance between the surviving entries."""
        return self.base.value(_mask(found, target), target)

    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """The base cotangent, zero where nothing was shared."""
        value, pulled = self.base.value_and_cotangent(_mask(found, target), target)
        return value, _mask(pulled, target)


@dataclass(frozen=True)
class Shortened(DistanceWrapper):
    """The base distance after scaling the candidate's gradient down, as clipping may have: D(g/s, t), s ≥ 1.

    s = max(1, ⟨g, t⟩/‖t‖²) makes g/s − t perpendicular to t, and D in units of ‖t‖ the squared tangent of the angle for
    SquaredL2. It is zero for the same gradients as a distance of directions, but has no bound: a search without a line
    search that once jumped far away comes back, where 1 − cos is flat. A shorter gradient is compared as it is, since
    clipping makes nothing longer.
    """

    @property
    def is_relative(self) -> bool:
        """In units of ‖t‖."""
        return True

    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Distance between the shortened candidate and the observation."""
        squared = norm_of(target, target).square()
        along = _total([torch.linalg.vecdot(flat(found[name]), flat(target[name])) for name in target])
        longer = (along / squared).clamp_min(1.0)
        factor = 1 / (longer * squared.sqrt())
        shorter = {name: found[name] * spread(factor, found[name]) for name in target}
        return self.base.value(shorter, scale_to_unit(target, target))

    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """Cotangent by automatic differentiation of the scaling alone."""
        return differentiate(self, found, target)


def differentiate(distance: Distance, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
    """The value and its cotangent by automatic differentiation."""
    with torch.enable_grad():
        leaves = {name: found[name].detach().requires_grad_() for name in target}
        value = distance.value(leaves, target)
        grads = torch.autograd.grad(value.sum(), list(leaves.values()))
    return value.detach(), dict(zip(leaves, grads, strict=True))


def distance_of_zero(distance: Distance, target: Grouped) -> float:
    """The distance between one observed update and an update of zeros."""
    return float(distance.value({name: torch.zeros_like(value) for name, value in target.items()}, target)[0])


def norm_of(values: Grouped, names: Grouped) -> Tensor:
    """The norm of the named tensors, taken as one vector per group."""
    return _total([flat(values[name]).square().sum(1) for name in names]).clamp_min(1e-24).sqrt()


def scale_to_unit(values: Grouped, names: Grouped) -> dict[str, Tensor]:
    """The named tensors over their norm, taken as one vector per group."""
    norm = norm_of(values, names)
    return {name: values[name] / spread(norm, values[name]) for name in names}


def _mask(values: Grouped, target: Grouped) -> dict[str, Tensor]:
    return {name: values[name] * (target[name] != 0) for name in target}


def _total(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts).sum(0)
