"""Axis 5: what is known of natural inputs, as penalties on a trial.

A penalty's weight is absolute, or relative to the matching gradient: then its gradient is
scaled to `weight` times the norm of the matching gradient at every step, which needs no
tuning for the network at hand. A relative penalty steers the steps and is not part of the
stored loss, which is the matching distance alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from leakscope.matching.trial import Trial


class Penalty(Protocol):
    """One number per group, differentiable in the trial's coordinates."""

    @property
    def weight(self) -> float:
        """Factor of the penalty's gradient."""
        ...

    @property
    def relative(self) -> bool:
        """Whether `weight` is relative to the matching gradient."""
        ...

    def value(self, trial: Trial) -> Tensor:
        """Return the unweighted penalty, shape [groups]."""
        ...


@dataclass(frozen=True)
class TotalVariation:
    """mean|∂x/∂column| + mean|∂x/∂row|: natural images change little between neighbours."""

    weight: float
    relative: bool = False

    def value(self, trial: Trial) -> Tensor:
        """Return the anisotropic total variation per group; means, so image size does not matter."""
        x = trial.coordinates
        if x.ndim < 5:
            # Zero, but still a function of x: the engine differentiates it.
            return 0 * x.flatten(1).sum(1)
        across = (x[..., :, 1:] - x[..., :, :-1]).abs().flatten(1).mean(1)
        down = (x[..., 1:, :] - x[..., :-1, :]).abs().flatten(1).mean(1)
        return across + down


@dataclass(frozen=True)
class OutOfRange:
    """Mean squared distance of the inputs from their allowed range."""

    weight: float
    relative: bool = False
    bounds: tuple[float, float] = (0.0, 1.0)

    def value(self, trial: Trial) -> Tensor:
        """Return the mean squared excess per group."""
        images = trial.images
        excess = torch.relu(images - self.bounds[1]) + torch.relu(self.bounds[0] - images)
        return excess.square().flatten(1).mean(1)
