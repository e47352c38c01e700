"""Axis 2: what is optimised, where it starts, and where it must stay.

Variables are named tensors with a leading dimension of groups that never mix. Two names have a meaning for every axis:
"inputs" holds image-shaped coordinates, "labels" label logits. A name that begins with "fixed." is drawn once and never
moved; one that begins with "unknown." is a tensor of the network that the server does not know.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from leakscope import rng as random
from leakscope.networks import find_normalisation, read_unknowns, start_unknowns
from leakscope.tasks import Columns
from leakscope.types import Observation, Tensors, limits_of

Variables = dict[str, Tensor]

FIXED = "fixed."
UNKNOWN = "unknown."


def is_fixed(name: str) -> bool:
    """Whether a variable keeps its starting value."""
    return name.startswith(FIXED)


def unknowns_of(variables: Variables) -> Variables:
    """The variables that are tensors of the network, moved or not, by the names of its buffers."""
    plain = {name.removeprefix(FIXED): value for name, value in variables.items()}
    return {name.removeprefix(UNKNOWN): value for name, value in plain.items() if name.startswith(UNKNOWN)}


def start_unknown_variables(seen: Observation, shared: Tensors, count: int, rng: Generator) -> Variables:
    """The network's unknown tensors for `count` examples: where a search begins, or fixed where `shared` tells them."""
    read = read_unknowns(seen.model, shared)
    sought = {k: v for k, v in start_unknowns(seen.model, count, rng).items() if k not in read}
    moving = {UNKNOWN + name: value for name, value in sought.items()}
    return moving | {FIXED + UNKNOWN + name: value for name, value in read.items()}


def stack_groups(groups: Sequence[Variables]) -> Variables:
    """Put the variables of single groups side by side."""
    return {name: torch.stack([group[name] for group in groups]) for name in groups[0]}


class Candidate(ABC):
    """Turns variables into model inputs."""

    @abstractmethod
    def start(self, seen: Observation, count: int, rng: Generator) -> Variables:
        """Return the variables of one group of `count` examples, without a group axis."""

    @abstractmethod
    def decode(self, seen: Observation, variables: Variables) -> Tensor:
        """Return model inputs [groups, count, …] for variables [groups, …], differentiably."""

    def project(self, seen: Observation, variables: Variables) -> Variables:
        """Move variables back to where they must stay, after each step; by default they may be anywhere."""
        return variables

    def around(self, base: Candidate) -> Candidate:
        """`base` seen as this candidate sees its own, where it is one that looks through something."""
        return base

    def original(self, seen: Observation, variables: Variables) -> Tensor | None:
        """The pictures before what a client is thought to have done to them, [groups, count, …]; None for nothing."""
        return None

    @property
    def generates_labels(self) -> bool:
        """Whether the variables also give the labels, so that none are inferred or optimised apart."""
        return False

    def soft_labels(self, seen: Observation, variables: Variables) -> Tensor:
        """Return label probabilities [groups, count, classes], differentiably, where labels are generated."""
        raise NotImplementedError(f"{type(self).__name__} generates no labels")

    def describe(self, seen: Observation, variables: Variables) -> tuple[str, ...]:
        """What there is to tell of one group's variables, which have no group axis here, beside its images."""
        return ()


@dataclass(frozen=True)
class Pixels(Candidate):
    """The inputs themselves.

    `normalised` optimises u = (x − mean)/std with the constants of the model's first layer, so
    that rates, start and penalties mean what they mean in papers that normalise the data.
    `spread` is the deviation of inputs, as a share of their range, that is assumed behind a network that does not
    normalise: with it u means the same there; without, u is x.
    `deviation` is that of a normal start, in units of u.
    `box` keeps the inputs inside the range of valid data after every step.
    """

    begin: Literal["normal", "uniform", "grey"] = "normal"
    normalised: bool = False
    box: bool = True
    spread: float | None = None
    deviation: float = 1.0

    def start(self, seen: Observation, count: int, rng: Generator) -> Variables:
        """Noise of the chosen kind, or the middle of the range."""
        shape = (count, *seen.input_shape)
        like = torch.empty(0, device=seen.device, dtype=seen.dtype)
        if self.begin == "normal":
            return {"inputs": self.deviation * random.normal(shape, rng, like=like)}
        low, high = limits_of(seen.bounds, like)
        inputs = low + (high - low) * (
            random.uniform(shape, rng, like=like) if self.begin == "uniform" else like.new_full(shape, 0.5)
        )
        mean, std = self._affine(seen, inputs)
        return {"inputs": (inputs - mean) / std}

    def decode(self, seen: Observation, variables: Variables) -> Tensor:
        """x = mean + std · u."""
        return self.images(seen, variables["inputs"])

    def images(self, seen: Observation, coordinates: Tensor) -> Tensor:
        """Model inputs at `coordinates`."""
        if not self.normalised:
            return coordinates
        mean, std = self._affine(seen, coordinates)
        return mean + std * coordinates

    def project(self, seen: Observation, variables: Variables) -> Variables:
        """Clamp to the box of valid data where the data has one; one-hot columns of a table also sum to one."""
        if not self.box or seen.bounds is None:
            return variables
        coordinates = variables["inputs"]
        mean, std = self._affine(seen, coordinates)
        if isinstance(seen.bounds, Columns):
            return {**variables, "inputs": (seen.bounds.project(mean + std * coordinates) - mean) / std}
        low, high = ((bound - mean) / std for bound in seen.bounds)
        return {**variables, "inputs": torch.minimum(torch.maximum(coordinates, low), high)}

    def _affine(self, seen: Observation, like: Tensor) -> tuple[Tensor, Tensor]:
        constants = find_normalisation(seen.model, seen.input_shape) if self.normalised else None
        # A layer that is there and changes nothing says nothing of the data.
        if constants is None or _is_identity(*constants):
            return self._assumed(seen, like)
        mean, std = constants
        shape = (-1, *[1] * (len(seen.input_shape) - 1))
        return mean.to(like).reshape(shape), std.to(like).reshape(shape)

    def _assumed(self, seen: Observation, like: Tensor) -> tuple[Tensor, Tensor]:
        """The middle of the range and the assumed deviation; 0 and 1 where nothing is assumed, and for tables."""
        if not self.normalised or self.spread is None or not isinstance(seen.bounds, tuple):
            return like.new_zeros(()), like.new_ones(())
        low, high = seen.bounds
        return like.new_tensor((low + high) / 2), like.new_tensor(self.spread * (high - low))


def _is_identity(mean: Tensor, std: Tensor) -> bool:
    return bool((mean == 0).all()) and bool((std == 1).all())
