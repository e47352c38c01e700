"""A candidate seen through learnable transformations: what an attacker who knows the policy optimises."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
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
    `each` gives every example a chain of its own, where one sign of a magnitude, or one policy, does not fit all. The
    pictures that are returned are the transformed ones: they are what the model saw.
    """

    transforms: tuple[Transform, ...]
    base: Candidate = field(default_factory=lambda: Pixels(begin="normal", normalised=True))
    each: tuple[tuple[Transform, ...], ...] = ()

    def start(self, seen: Observation, count: int, rng: Generator) -> Variables:
        """The base's start, and every parameter at its own."""
        begin = self.base.start(seen, count, rng)
        for place in range(self._length()):
            value = torch.tensor(self._rows(place, "start"), device=seen.device, dtype=seen.dtype)
            begin[variable(place)] = value.expand(count, value.shape[1]).clone()
        return begin

    def decode(self, seen: Observation, variables: Variables) -> Tensor:
        """Decode, then transform in pixel space."""
        images = self.base.decode(seen, variables)
        for place in range(self._length()):
            images = self._step(place, images, variables[variable(place)])
        return images

    def around(self, base: Candidate) -> Candidate:
        """`base` through the same transformations."""
        return replace(self, base=base)

    def original(self, seen: Observation, variables: Variables) -> Tensor | None:
        """The picture before the transformations."""
        return self.base.decode(seen, variables)

    def _step(self, place: int, images: Tensor, parameters: Tensor) -> Tensor:
        """What is at `place` of every example's chain; one call for all that have the same there."""
        row = [chain[place] if place < len(chain) else None for chain in self._chains()]
        if len({None if item is None else item.apply for item in row}) == 1:
            return images if row[0] is None else _apply(row[0], images, parameters)
        pieces = [
            images[:, [i]] if item is None else _apply(item, images[:, [i]], parameters[:, [i]])
            for i, item in enumerate(row)
        ]
        return torch.cat(pieces, dim=1)

    def project(self, seen: Observation, variables: Variables) -> Variables:
        """Keep the base where it must stay, and the parameters in their ranges."""
        moved = dict(self.base.project(seen, variables))
        for place in range(self._length()):
            value = moved[variable(place)]
            low, high = (value.new_tensor(self._rows(place, bound)) for bound in ("low", "high"))
            moved[variable(place)] = torch.minimum(torch.maximum(value, low), high)
        return moved

    def _rows(self, place: int, part: Literal["start", "low", "high"]) -> list[tuple[float, ...]]:
        """One row for every example, or a single one for all of them; shorter ones filled up."""
        rows = [_part(chain[place], part) if place < len(chain) else () for chain in self._chains()]
        width = max(map(len, rows))
        return [(*row, *[0.0] * (width - len(row))) for row in rows]

    def _chains(self) -> tuple[tuple[Transform, ...], ...]:
        return self.each or (self.transforms,)

    def _length(self) -> int:
        return max(map(len, self._chains()))

    def describe(self, seen: Observation, variables: Variables) -> tuple[str, ...]:
        """The parameters that were learnt, example by example."""
        if len({tuple(item.name for item in chain) for chain in self._chains()}) > 1:
            return ("learnt transformation: " + "; ".join(self._describe_each(variables)),)
        learnt = []
        for place, transform in enumerate(self.transforms):
            rows = ["/".join(f"{number:.3g}" for number in row) for row in variables[variable(place)].tolist()]
            learnt.append(f"{transform.name} {', '.join(rows)}" if transform.start else transform.name)
        return ("learnt transformation: " + "; ".join(learnt),)

    def _describe_each(self, variables: Variables) -> list[str]:
        """One entry for every example, where their operations differ."""
        found = []
        for example, chain in enumerate(self.each):
            values = [variables[variable(place)][example].tolist() for place in range(len(chain))]
            parts = [
                " ".join([item.name, "/".join(f"{number:.3g}" for number in row[: len(item.start)])]).strip()
                for item, row in zip(chain, values, strict=True)
            ]
            found.append(" ".join(parts))
        return found


def _apply(item: Transform, images: Tensor, parameters: Tensor) -> Tensor:
    flat = item.apply(images.flatten(0, 1), parameters.flatten(0, 1)[:, : len(item.start)])
    return flat.unflatten(0, images.shape[:2])


def _part(item: Transform, part: Literal["start", "low", "high"]) -> tuple[float, ...]:
    return {"start": item.start, "low": item.low, "high": item.high}[part]


def variable(place: int) -> str:
    """Name of the parameters of the transformation at `place`."""
    return f"transform.{place}"
