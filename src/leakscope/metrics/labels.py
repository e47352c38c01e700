"""Labels: right for the example they were paired with, and right as a collection."""

from __future__ import annotations

from collections import Counter

from torch import Tensor

from leakscope.errors import BadInputError


def label_correct(predicted: Tensor, truth: Tensor) -> Tensor:
    """Whether each predicted label equals that of its example, bool [n].

    Targets with more than one entry, such as a spelled word, count only when all agree.
    """
    if predicted.shape != truth.shape:
        raise BadInputError(
            f"label_correct needs one prediction per target, got {list(predicted.shape)} for {list(truth.shape)}"
        )
    return (predicted.to(truth.device) == truth).unsqueeze(-1).flatten(1).all(1)


def label_accuracy(predicted: Tensor, truth: Tensor) -> float:
    """Share of the true labels that were recovered, in whatever order.

    A server that knows *which* classes are present has learnt them even when the pictures are
    too poor to be paired with the right example, so the order is ignored: the size of the
    common multiset divided by the number of true labels.

    Example:
        >>> import torch
        >>> label_accuracy(torch.tensor([3, 1, 1]), torch.tensor([1, 3, 7]))
        0.6666666666666666
    """
    if len(truth) == 0:
        raise BadInputError("label_accuracy needs at least one true label, got none")
    common = _counted(predicted) & _counted(truth)
    return sum(common.values()) / len(truth)


def _counted(labels: Tensor) -> Counter[tuple[float, ...]]:
    return Counter(tuple(row) for row in labels.unsqueeze(-1).flatten(1).tolist())
