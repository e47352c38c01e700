"""Axis 2: what is optimised, where it starts, and where it must stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Generator, Tensor

from leakscope import rng as random
from leakscope.types import Observation


class Candidate(Protocol):
    """Turns coordinates into model inputs."""

    def start(self, seen: Observation, count: int, rng: Generator) -> Tensor:
        """Return coordinates [count, …] of one group."""
        ...

    def decode(self, seen: Observation, coordinates: Tensor) -> Tensor:
        """Return model inputs for coordinates [groups, count, …], differentiably."""
        ...

    def project(self, seen: Observation, coordinates: Tensor) -> Tensor:
        """Move coordinates back to where they must stay, after each step."""
        ...


@dataclass(frozen=True)
class Pixels:
    """The inputs themselves.

    `normalised` optimises u = (x − mean)/std with the constants of the model's first layer, so
    that rates, start and penalties mean what they mean in papers that normalise the data.
    `box` keeps the inputs inside the range of valid data after every step.
    """

    begin: Literal["normal", "uniform", "grey"] = "normal"
    normalised: bool = False
    box: bool = True

    def start(self, seen: Observation, count: int, rng: Generator) -> Tensor:
        """Noise of the chosen kind, or the middle of the range."""
        shape = (count, *seen.input_shape)
        like = torch.empty(0, device=seen.device, dtype=seen.dtype)
        if self.begin == "normal":
            return random.normal(shape, rng, like=like)
        low, high = seen.bounds or (0.0, 1.0)
        inputs = low + (high - low) * (
            random.uniform(shape, rng, like=like) if self.begin == "uniform" else like.new_full(shape, 0.5)
        )
        mean, std = self._affine(seen, inputs)
        return (inputs - mean) / std

    def decode(self, seen: Observation, coordinates: Tensor) -> Tensor:
        """x = mean + std · u."""
        if not self.normalised:
            return coordinates
        mean, std = self._affine(seen, coordinates)
        return mean + std * coordinates

    def project(self, seen: Observation, coordinates: Tensor) -> Tensor:
        """Clamp to the box of valid data where the data has one."""
        if not self.box or seen.bounds is None:
            return coordinates
        mean, std = self._affine(seen, coordinates)
        low, high = ((bound - mean) / std for bound in seen.bounds)
        return torch.minimum(torch.maximum(coordinates, low), high)

    def _affine(self, seen: Observation, like: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = normalisation(seen) if self.normalised else (None, None)
        if mean is None or std is None:
            return like.new_zeros(()), like.new_ones(())
        shape = (-1, *[1] * (len(seen.input_shape) - 1))
        return mean.to(like).reshape(shape), std.to(like).reshape(shape)


def normalisation(seen: Observation) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Constants of the model's own normalisation layer: the first module with `mean` and `std`."""
    for module in seen.model.modules():
        mean, std = getattr(module, "mean", None), getattr(module, "std", None)
        if isinstance(mean, Tensor) and isinstance(std, Tensor) and mean.numel() in (1, seen.input_shape[0]):
            return mean, std
    return None, None
