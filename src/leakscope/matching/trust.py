"""Whether a fast route may be believed: its result beside plain double backward, at one place.

The measure is the relative error of a derivative, ‖fast − plain‖ / ‖plain‖, in the images and in soft targets, and the
relative gap of the distance. Two things make the two differ where neither is wrong:

- Rounding. Close to the solution a distance is the difference of nearly equal numbers, and double backward itself is
  not exact in float32. Then both are compared with double backward in float64: a fast route no more than `AS_GOOD`
  times as far from it as the plain route is as good. A distance that has nearly vanished counts beside the rounding of
  the numbers it is a difference of, which are as large as the distance of an update of zeros.
- Ties. Where neighbouring pixels are equal (a constant start, a region clamped to black) values that max pooling
  compares are equal but for their rounding, and each route takes another of them: both derivatives are valid ones. A
  little noise on the images breaks the ties; a rule that is wrong stays wrong there.

Where a run has come to rest (a noisy update that no picture explains any better), the derivative is a tenth of what it
was and the error of a difference quotient is what it was: there the error counts beside the derivative at the start.
An error that could misjudge no step within the range of the inputs by more than a hundredth of the distance is harmless
however little of the derivative is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakscope import rng as random
from leakscope.matching.distances.distance import Grouped, distance_of_zero
from leakscope.matching.problem import Match, PlainRoute, select_group
from leakscope.networks import copy_network
from leakscope.types import Bounds, Observation, limits_of

# What the documentation promises of differences, a few 1e-3, is asked at the start. They drift during a run: up to
# 9.5e-3 was measured (sigmoid LeNet, L-BFGS), on ConvNet and ResNet20-4 4e-3. A wrong rule is off by far more.
START_ERROR = 5e-3
LATER_ERROR = 1e-2
# The most that is admitted of a derivative that has fallen since the start: see `later_limit`.
MOST_ERROR = 0.1
# Of a distance that no step could lower by much: see `harmless_error`.
HARMLESS = 1e-2
DISTANCE_GAP = 1e-3
# Rounding errors of a distance, each as large as the last digit of the distance of zero.
DISTANCE_ROUNDING = 4.0
AS_GOOD = 2.0
# Examples of a group that are checked; double backward of all of a large batch would need more memory than the run.
MOST_EXAMPLES_CHECKED = 4
# Standard deviation of the noise that breaks ties, as a share of the range of the inputs; a step of 8 bits is 4e-3.
JITTER = 1e-3

Evaluate = Callable[[Tensor, Tensor, Grouped], Match]


@dataclass(frozen=True)
class CheckPoint:
    """Where routes are compared: images [groups, n, …], targets, and the observed updates [groups, …]."""

    images: Tensor
    targets: Tensor
    target: Grouped

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return len(self.images)

    def group(self, group: int) -> CheckPoint:
        """One group, still with its axis."""
        one = slice(group, group + 1)
        return CheckPoint(self.images[one].detach(), self.targets[one].detach(), select_group(self.target, group))

    def evaluate(self, route: Evaluate) -> Match:
        """What a route finds here."""
        return route(self.images, self.targets, self.target)

    def reach(self, group: int, bounds: Bounds | None) -> float:
        """The longest step that the inputs of a group can make: from one corner of their range to the other."""
        if bounds is None:
            return math.inf
        low, high = limits_of(bounds, self.images)
        return float((torch.as_tensor(high - low) * torch.ones_like(self.images[group])).norm())

    def jitter(self, low: float | Tensor, high: float | Tensor, seed: int) -> CheckPoint:
        """The same with a little noise on the images."""
        noise = random.normal_like(self.images, random.generator(seed, "ties"))
        return replace(self, images=self.images + JITTER * (high - low) * noise)


@dataclass(frozen=True)
class Gap:
    """Relative errors of the distance, and of the derivatives in images and soft targets."""

    distance: float
    images: float
    targets: float = 0.0

    @property
    def error(self) -> float:
        """The larger error of a derivative."""
        return max(self.images, self.targets)

    def within(self, limit: float) -> bool:
        """Whether derivatives are within `limit` and the distance within its own; never where one is not a number."""
        return self.distance <= DISTANCE_GAP and self.images <= limit and self.targets <= limit

    def as_good_as(self, other: Gap, limit: float) -> bool:
        """Whether everything is within its limit, or not much further away than `other`."""
        limits = (max(DISTANCE_GAP, AS_GOOD * other.distance), *(max(limit, AS_GOOD * e) for e in _errors(other)))
        return all(found <= most for found, most in zip((self.distance, *_errors(self)), limits, strict=True))


@dataclass(frozen=True)
class RouteAgreement:
    """Whether a route agrees with double backward, how far it is from it, and whether ties had to be broken first."""

    agrees: bool
    error: float
    ties: bool = False


@dataclass(frozen=True)
class Referee:
    """Compares routes with `plain`; `whole`: examples of a batch depend on each other, so all of them are needed."""

    plain: PlainRoute
    whole: bool = False
    seed: int = 0

    def sample(self, place: CheckPoint) -> CheckPoint:
        """The place with as many examples of every group as are compared; itself where that is all of them."""
        count = place.images.shape[1]
        if self.whole or count <= MOST_EXAMPLES_CHECKED:
            return place
        drawn = torch.randperm(count, generator=random.generator(self.seed, "examples"))[:MOST_EXAMPLES_CHECKED]
        examples = drawn.to(place.images.device)
        return replace(place, images=place.images[:, examples], targets=place.targets[:, examples])

    def compare(self, route: Evaluate, place: CheckPoint, group: int, *, limit: float, found: Match) -> RouteAgreement:
        """Compare one group of what `route` found in all groups at `place`."""
        own = place.group(group)
        gap, good = self._measure(take_group(found, group), own, limit)
        if good or not own.images.is_floating_point():
            return RouteAgreement(good, gap.error)
        # All groups together, as they run: a fault of one of them must not vanish where it is alone.
        shaken = place.jitter(*limits_of(self.plain.seen.bounds, place.images), self.seed)
        apart, good = self._measure(take_group(shaken.evaluate(route), group), shaken.group(group), limit)
        return RouteAgreement(good, (apart if good else gap).error, ties=good)

    def _measure(self, found: Match, place: CheckPoint, limit: float) -> tuple[Gap, bool]:
        plain = place.evaluate(self.plain)
        least = self._least_distance(place, plain.distance.dtype)
        gap = measure_gap(found, plain, least)
        if gap.within(limit) or plain.images.dtype == torch.float64:
            return gap, gap.within(limit)
        exact = self._in_double(place)
        if exact is None:
            return gap, False
        return gap, measure_gap(found, exact, least).as_good_as(measure_gap(plain, exact, least), limit)

    def _least_distance(self, place: CheckPoint, dtype: torch.dtype) -> float:
        """The distance of which rounding alone makes a gap of `DISTANCE_GAP`."""
        unit = distance_of_zero(self.plain.distance, place.target)
        return DISTANCE_ROUNDING * torch.finfo(dtype).eps / DISTANCE_GAP * abs(unit)

    def _in_double(self, place: CheckPoint) -> Match | None:
        """What double backward finds in float64; None where the network or its loss cannot be run there."""
        plain = replace(self.plain, seen=_to_double(self.plain.seen))
        soft = place.targets.is_floating_point()
        targets = place.targets.double() if soft else place.targets
        goal = {name: value.double() for name, value in place.target.items()}
        try:
            return plain(place.images.double(), targets, goal)
        except RuntimeError:  # constants of the caller's own loss or layer stay in their dtype
            return None


def measure_gap(found: Match, reference: Match, least: float = 0.0) -> Gap:
    """Relative errors of `found`; that of a distance below `least` in units of `least`."""
    distance = _relative(found.distance, reference.distance, least)
    targets = 0.0
    if found.targets is not None and reference.targets is not None:
        targets = _relative(found.targets, reference.targets)
    return Gap(distance, _relative(found.images, reference.images), targets)


def later_limit(start: float, here: float) -> float:
    """The relative error admitted after the start, given the derivative's norm at the start and here.

    An error that has not grown beyond `LATER_ERROR` of the start's derivative is admitted up to `MOST_ERROR` of the one
    here, 6° off: a derivative that vanishes has no relative error, and a wrong rule is off by more.
    """
    return min(MOST_ERROR, LATER_ERROR * max(1.0, start / max(here, 1e-300)))


def harmless_error(distance: float, here: float, reach: float) -> float:
    """The relative error of a derivative of norm `here` that misjudges no step by more than `HARMLESS` · distance.

    A step is at most `reach` long, so that an error e of the derivative changes what it promises by at most e · reach.
    Where the solution is near the distance is small, too, and next to nothing is admitted.
    """
    return HARMLESS * distance / max(here * reach, 1e-300)


def take_group(match: Match, group: int) -> Match:
    """One group's part of a match, still with its axis."""
    one = slice(group, group + 1)
    return Match(match.distance[one], match.images[one], None if match.targets is None else match.targets[one])


def _errors(gap: Gap) -> tuple[float, float]:
    return gap.images, gap.targets


def _relative(found: Tensor, reference: Tensor, least: float = 0.0) -> float:
    """‖found − reference‖ / ‖reference‖; 0 where both are zero."""
    left, right = found.detach().double(), reference.detach().double()
    apart, size = float((left - right).norm()), float(right.norm())
    return 0.0 if apart == 0 else apart / max(size, least, 1e-300)


def _to_double(seen: Observation) -> Observation:
    tensors = {name: value.double() for name, value in seen.update.tensors.items()}
    return replace(seen, model=copy_network(seen.model).double(), update=replace(seen.update, tensors=tensors))
