"""Whether a client trained with the loss that a server's reading relies on, found by trying it on made-up scores."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from leakscope import rng as random
from leakscope.errors import UnsuitableError
from leakscope.types import Loss, Observation

# "raw-nll" is the released code's: minus the score of the label, without a softmax before it.
LossName = Literal["raw-nll", "cross-entropy"]
_FUNCTIONS: dict[str, Loss] = {"raw-nll": functional.nll_loss, "cross-entropy": functional.cross_entropy}
_EXAMPLES = 5
_MISUSE = (RuntimeError, ValueError, TypeError, IndexError)


def check_trained_with(seen: Observation, expected: LossName, *, attack: str) -> None:
    """Refuse an update of another loss: read as this one it would give pictures that nobody has."""
    names = [name for name in _FUNCTIONS if _agrees(seen, _FUNCTIONS[name])]
    if expected in names:
        return
    remedy = f"use loss={names[0]!r}" if names else "use class-fishing or inverting-gradients"
    usual = {"raw-nll": "torch.nn.functional.nll_loss on raw scores", "cross-entropy": "the softmax cross-entropy"}
    raise UnsuitableError(
        f"{attack} with loss={expected!r} needs a client that trains with {usual[expected]}, and this one does not; "
        f"{remedy}"
    )


def _agrees(seen: Observation, function: Loss) -> bool:
    """Whether the client's loss has the same gradient in the scores, up to a positive factor."""
    rng = random.generator(0, "made-up scores")
    scores = random.normal((_EXAMPLES, seen.num_classes), rng).to(seen.device, torch.float64)
    labels = torch.linspace(0, seen.num_classes - 1, _EXAMPLES).long().to(seen.device)
    try:
        own, usual = (_slope(one, scores, labels) for one in (seen.loss, function))
    except _MISUSE:
        return False
    return float(torch.cosine_similarity(own.flatten(), usual.flatten(), dim=0)) > 1 - 1e-6


def _slope(loss: Loss, scores: Tensor, labels: Tensor) -> Tensor:
    with torch.enable_grad():
        moved = scores.clone().requires_grad_()
        return torch.autograd.grad(loss(moved, labels), moved)[0]
