"""How far the weights move in a difference quotient.

A short step drowns in rounding, a long one in curvature. What tells them apart is how far the
*result* moves: with rounding noise η the best step moves the input gradient by a few √η of
itself, on every network tried (trained or not, far from the truth or near it). How far the
weights must move for that differs a hundredfold between networks and hardly during an attack,
so the ratio is measured on the first use and again whenever a result leaves the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from leakscope.fastgrad.weights import FoldedWeights

# In units of √(machine epsilon): where the error of a quotient was smallest, measured; and
# by which factor a result may miss that before the step is corrected.
BEST = 7.0
WINDOW = 1.7


class StepSize:
    """The ratio of step to relative movement of the weights that suits one network."""

    def __init__(self) -> None:
        self._ratio = 0.6

    def sizes(self, movement: Tensor) -> Tensor:
        """Step sizes [G, 1] for a direction along which the weights move by `movement`."""
        limits = torch.finfo(movement.dtype)
        return self._ratio * limits.eps**0.5 / movement.clamp_min(limits.tiny)

    def suits(self, before: Tensor, after: Tensor) -> bool:
        """Whether the result [G, …] moved as far as it should; if not, correct the ratio."""
        moved, size = ((value.double().flatten(1).norm(dim=1)) for value in (after - before, before))
        units = float((moved / size).log().mean().exp()) / torch.finfo(before.dtype).eps ** 0.5
        # A result that is zero, infinite or did not move at all says nothing about the step.
        if not 0 < units < float("inf") or BEST / WINDOW < units < BEST * WINDOW:
            return True
        self._ratio *= BEST / units
        return False


def relative_movement(layers: Iterable[FoldedWeights], direction: Mapping[str, Tensor]) -> Tensor:
    """Root of Σ ‖v‖²/‖w‖² [G, 1], over the first parameter of each layer that moves."""
    squares: list[Tensor] = []
    for layer in layers:
        moving = [(part, direction[part.name]) for part in layer.parts() if part.name and part.name in direction]
        for part, change in moving[:1]:
            least = torch.finfo(change.dtype).tiny
            squares.append((torch.linalg.vector_norm(change.flatten(1), dim=1) / part.size.clamp_min(least)).square())
    return torch.stack(squares).sum(0).sqrt().unsqueeze(1)
