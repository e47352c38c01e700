"""The one information object that penalties and routes read."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from leakscope.matching.variables import Variables
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
