"""How an update was made, as its numbers alone show it.

- Adam moves every weight by about its rate in a step, however long the gradient is: the largest entry of its change is
  a small multiple of the root mean square. Entries of gradients differ by orders of magnitude.
- Softmax cross-entropy: the rows of the last weight's gradient cancel out over the classes. Weight decay adds
  λ · W to it, so that the rows then sum to λ · Σ_c W_c: a vector that is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.types import Tensors

# Gradients of the networks measured had 20 and more; Gaussian noise of 10,000 entries has 3.9; Adam had 1 to 2.4.
_FLAT = 3.0
# Fewer entries say little: the largest of 300 Gaussian numbers is 3 times their spread.
_ENOUGH = 1_000
# What pruning leaves is alike as well, 1.9 in the flattest case, but little is left; Adam left up to 44 % unmoved.
_PRUNED = 2 / 3
# Of the row sums, the share that lies along those of the weights.
_ALONG = 0.9
# Row sums below this share of the rows are rounding.
_UNBALANCED = 1e-3


def peak(tensors: Tensors) -> float:
    """The largest entry over the root mean square, of all entries that are not zero; inf where they are few."""
    entries = torch.cat([value.detach().reshape(-1).double() for value in tensors.values()])
    moved = entries[entries != 0].abs()
    if len(moved) < max(_ENOUGH, (1 - _PRUNED) * len(entries)):
        return float("inf")
    return float(moved.max() / moved.square().mean().sqrt())


def looks_like_adam(tensors: Tensors) -> bool:
    """Whether all weights moved by about the same amount."""
    return peak(tensors) < _FLAT


@dataclass(frozen=True)
class Decay:
    """The weight decay that an update shows: `factor` · W is part of it, by a share `along` of the evidence."""

    factor: float
    along: float


def find_decay(change: Tensor, weight: Tensor) -> Decay | None:
    """What the row sums of the last layer's change say of weight decay; None where they say nothing."""
    rows, sums, weights = change.double(), change.double().sum(0), weight.detach().double().sum(0)
    balanced = float(sums.norm()) < _UNBALANCED * float(rows.norm(dim=1).sum())
    if balanced or not bool(weights.any()) or not bool(sums.any()):
        return None
    along = float(torch.cosine_similarity(sums, weights, dim=0)) ** 2
    return Decay(float(sums @ weights / weights.square().sum()), along) if along > _ALONG else None
