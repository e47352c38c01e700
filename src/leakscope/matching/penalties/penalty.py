"""Axis 5: what is known of natural inputs, as penalties on a trial.

A penalty's weight is absolute, or relative to the matching gradient: then its gradient is
scaled to `weight` times the norm of the matching gradient at every step, which needs no
tuning for the network at hand. A relative penalty steers the steps and is not part of the
stored loss, which is the matching distance alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from torch import Tensor, nn

from leakscope.matching.candidates.pixels import Variables
from leakscope.types import Observation


@dataclass(frozen=True)
class Trial:
    """Candidates of all groups at one step.

    Attributes:
        coordinates: the variable "inputs" where the candidate has one, else the images, [groups, n, …].
        images: the same as model inputs, [groups, n, …].
        targets: labels [groups, n], or probabilities [groups, n, classes].
        model: the network under attack.
        seen: one observation a victim; groups are victims × restarts, a victim's restarts adjacent.
        restarts: groups per victim.
        variables: everything that is optimised.
        step: evaluations so far.
        steps: length of the run, for what begins at a share of it.
    """

    coordinates: Tensor
    images: Tensor
    targets: Tensor
    model: nn.Module
    seen: tuple[Observation, ...] = ()
    restarts: int = 1
    variables: Variables = field(default_factory=dict)
    step: int = 0
    steps: int = 0


class Penalty(ABC):
    """One number per group, differentiable in the trial's coordinates."""

    # Factor of the penalty's gradient.
    weight: float
    # Whether `weight` is relative to the matching gradient.
    relative: bool = False

    @abstractmethod
    def value(self, trial: Trial) -> Tensor:
        """Return the unweighted penalty, shape [groups]."""

    def weight_at(self, trial: Trial) -> float:
        """The factor in this trial; a penalty may fit it to what is being rebuilt."""
        return self.weight


# The side of the pictures that relative weights were chosen on.
_USUAL_SIDE = 32


@dataclass(frozen=True)
class TotalVariation(Penalty):
    """mean|∂x/∂column| + mean|∂x/∂row|: natural images change little between neighbours.

    `fitted` takes `weight` for that of one picture of 32 pixels a side and multiplies it by √n for n examples, of
    which an update says less each, and by side/32 for smaller pictures, whose neighbours differ more.
    """

    weight: float
    relative: bool = False
    fitted: bool = False

    def weight_at(self, trial: Trial) -> float:
        """Return `weight`, fitted to the number and size of the pictures if so asked."""
        x = trial.coordinates
        if not self.fitted or x.ndim < 5:
            return self.weight
        return self.weight * math.sqrt(x.shape[1]) * min(1.0, min(x.shape[-2:]) / _USUAL_SIDE)

    def value(self, trial: Trial) -> Tensor:
        """Return the anisotropic total variation per group; means, so image size does not matter."""
        x = trial.coordinates
        if x.ndim < 5:
            # Zero, but still a function of x: the engine differentiates it.
            return 0 * x.flatten(1).sum(1)
        across = (x[..., :, 1:] - x[..., :, :-1]).abs().flatten(1).mean(1)
        down = (x[..., 1:, :] - x[..., :-1, :]).abs().flatten(1).mean(1)
        return across + down
