"""The one information object that penalties and routes read."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Trial:
    """Candidates of all groups at one step.

    Attributes:
        coordinates: what the candidate axis optimises, [groups, n, …].
        images: the same as model inputs, [groups, n, …].
        targets: labels [groups, n], or probabilities [groups, n, classes].
        model: the network under attack.
    """

    coordinates: Tensor
    images: Tensor
    targets: Tensor
    model: nn.Module
