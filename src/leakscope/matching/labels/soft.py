"""Labels as probabilities, and back: a softmax over several logits, a sigmoid where there is one."""

from __future__ import annotations

from torch import Tensor


def probabilities(logits: Tensor) -> Tensor:
    """Label probabilities [..., classes]; of one logit the probability of label 1, since its softmax is always 1."""
    return logits.sigmoid() if logits.shape[-1] == 1 else logits.softmax(-1)


def likeliest(targets: Tensor, *, axes: int = 1) -> Tensor:
    """Whole labels for probabilities; the first `axes` axes count examples, a missing one after them is one logit."""
    each = targets.reshape(*targets.shape[:axes], -1)
    return (each[..., 0] >= 0.5).long() if each.shape[-1] == 1 else each.argmax(-1)
