"""What an update shows of its own making, whatever the examples were.

- Adam moves every weight by about its rate in a step, however long the gradient is: the largest entry of its change is
  a small multiple of the root mean square. Entries of gradients differ by orders of magnitude.
- Softmax cross-entropy: the rows of the last weight's gradient cancel out over the classes. Weight decay adds
  λ · W to it, so that the rows then sum to λ · Σ_c W_c: a vector that is known.
- Dropout sets features to zero, and with them whole columns of the next layer's weight gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakscope.networks import find_head, noise_inputs
from leakscope.observation.consistency import CHANGED, TOO_LARGE, TOO_MANY
from leakscope.types import Observation, Tensors

# Gradients of the networks measured had 20 and more; Gaussian noise of 10,000 entries has 3.9; Adam had 1 to 2.4.
_FLAT = 3.0
# Fewer entries say little: the largest of 300 Gaussian numbers is 3 times their spread.
_ENOUGH = 1_000
# Of the row sums, the share that lies along those of the weights.
_ALONG = 0.9
# Row sums below this share of the rows are rounding.
_UNBALANCED = 1e-3


def peak(tensors: Tensors) -> float:
    """The largest entry over the root mean square, of all entries that are not zero; inf where they are few."""
    entries = torch.cat([value.detach().reshape(-1).double() for value in tensors.values()])
    entries = entries[entries != 0].abs()
    if len(entries) < _ENOUGH:
        return float("inf")
    return float(entries.max() / entries.square().mean().sqrt())


def looks_like_adam(tensors: Tensors) -> bool:
    """Whether all weights moved by about the same amount."""
    return peak(tensors) < _FLAT


@dataclass(frozen=True)
class Decay:
    """The weight decay that an update shows: `factor` · W is part of it, by a share `along` of the evidence."""

    factor: float
    along: float


def shown_decay(seen: Observation) -> Decay | None:
    """What the row sums of the last layer say of weight decay; None where they say nothing."""
    if not seen.task.is_cross_entropy:
        return None
    head = find_head(seen.model, noise_inputs(seen.model, seen.input_shape))
    if head is None:
        return None
    change = _of(seen, head.weight)
    if change is None:
        return None
    rows, sums, weights = change.double(), change.double().sum(0), head.weight.detach().double().sum(0)
    balanced = float(sums.norm()) < _UNBALANCED * float(rows.norm(dim=1).sum())
    if balanced or not bool(weights.any()) or not bool(sums.any()):
        return None
    along = float(torch.cosine_similarity(sums, weights, dim=0)) ** 2
    return Decay(float(sums @ weights / weights.square().sum()), along) if along > _ALONG else None


def was_changed(seen: Observation) -> bool:
    """Whether the marks of a gradient are broken as noise, pruning and quantisation break them."""
    return any(note in (CHANGED, TOO_LARGE, TOO_MANY) for note in seen.notes)


def empty_columns(tensors: Tensors, name: str) -> float:
    """The share of inputs of a linear layer that got no gradient at all."""
    return float((tensors[name].detach() == 0).all(dim=0).double().mean())


def behind_dropout(model: nn.Module) -> list[str]:
    """Names of the weights of linear layers that follow a dropout layer which is declared inactive."""
    found: list[str] = []
    waiting = False
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 and not module.training:
            waiting = True
        elif isinstance(module, nn.Linear):
            if waiting:
                found.append(f"{name}.weight")
            waiting = False
    return found


def _of(seen: Observation, parameter: Tensor) -> Tensor | None:
    names = {id(value): name for name, value in seen.model.named_parameters()}
    return seen.update.tensors.get(names.get(id(parameter), ""))
