"""A candidate seen through learnable transformations: what an attacker who knows the policy optimises."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Generator, Tensor

from leakscope.matching.candidates.pixels import Candidate, Pixels, Variables
from leakscope.matching.candidates.transforms import Transform
from leakscope.types import Observation


@dataclass(frozen=True)
class Transformed(Candidate):
    """`base` decoded to pictures, which then pass through `transforms` in order.

    Every example has parameters of its own, one variable per transformation, named "transform.<place>".
    `each` gives every example the same operations with a start and a range of its own, where one sign of a
    magnitude does not fit all. The pictures that are returned are the transformed ones: they are what the model saw.
    """

    transforms: tuple[Transform, ...]
    base: Candidate = field(default_factory=lambda: Pixels(begin="normal", normalised=True))
    each: tuple[tuple[Transform, ...], ...] = ()

    def start(self, seen: Observation, count: int, rng: Generator) -> Variables:
        """The base's start, and every parameter at its own."""
        begin = self.base.start(seen, count, rng)
        for place, transform in enumerate(self.transforms):
            value = torch.tensor(self._rows(place, "start"), device=seen.device, dtype=seen.dtype)
            begin[variable(place)] = value.expand(count, len(transform.start)).clone()
        return begin

    def decode(self, seen: Observation, variables: Variables) -> Tensor:
        """Decode, then transform in pixel space."""
        images = self.base.decode(seen, variables)
        flat = images.flatten(0, 1)
        for place, transform in enumerate(self.transforms):
            flat = transform.apply(flat, variables[variable(place)].flatten(0, 1))
        return flat.unflatten(0, images.shape[:2])

    def project(self, seen: Observation, variables: Variables) -> Variables:
        """Keep the base where it must stay, and the parameters in their ranges."""
        moved = dict(self.base.project(seen, variables))
        for place in range(len(self.transforms)):
            value = moved[variable(place)]
            low, high = (value.new_tensor(self._rows(place, bound)) for bound in ("low", "high"))
            moved[variable(place)] = torch.minimum(torch.maximum(value, low), high)
        return moved

    def _rows(self, place: int, part: Literal["start", "low", "high"]) -> list[tuple[float, ...]]:
        """One row for every example, or a single one for all of them."""
        return [getattr(chain[place], part) for chain in self.each or (self.transforms,)]

    def describe(self, seen: Observation, variables: Variables) -> tuple[str, ...]:
        """The parameters that were learnt, example by example."""
        learnt = []
        for place, transform in enumerate(self.transforms):
            rows = ["/".join(f"{number:.3g}" for number in row) for row in variables[variable(place)].tolist()]
            learnt.append(f"{transform.name} {', '.join(rows)}" if transform.start else transform.name)
        return ("learnt transformation: " + "; ".join(learnt),)


def variable(place: int) -> str:
    """Name of the parameters of the transformation at `place`."""
    return f"transform.{place}"
