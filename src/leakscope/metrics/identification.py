"""What a reconstruction identifies: the label of an example, and the example itself among many others.

A blurred face may score a low PSNR and still single out one person of a gallery. This is the
question a data protection officer asks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.errors import BadInputError
from leakscope.metrics.assign import BROKEN, mse_matrix


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
    common = _count(predicted) & _count(truth)
    return sum(common.values()) / len(truth)


def _count(labels: Tensor) -> Counter[tuple[float, ...]]:
    return Counter(tuple(row) for row in labels.unsqueeze(-1).flatten(1).tolist())


@dataclass(frozen=True)
class Identification:
    """`rank[i]` is the number of other pool images nearer to reconstruction i than its truth.

    `correct` is rank 0; `rate` its mean; `chance` what random picking reaches on this pool.
    """

    correct: Tensor
    rank: Tensor
    rate: float
    chance: float


@torch.no_grad()
def identify(
    reconstruction: Tensor, truth: Tensor, *, distractors: Tensor | None = None, assignment: Tensor | None = None
) -> Identification:
    """Look up each reconstruction among all truths and `distractors` by squared error.

    An exact copy of the truth in the pool does not count against it. A missing or non-finite
    reconstruction identifies nobody and ranks last.

    Args:
        reconstruction: [k, …] in [0, 1].
        truth: [n, …] in [0, 1].
        distractors: [m, …], images that were not used for the update.
        assignment: [n], reconstruction of each truth or −1, as in `Scores.assignment`. Without
            it row i of both belongs together.

    Example:
        >>> images = torch.eye(4)
        >>> identify(images * 0.6, images).rate
        1.0
    """
    assignment = _check_assignment(assignment, len(reconstruction), truth=truth)
    pool = truth if distractors is None else torch.cat([truth, distractors.to(truth)])
    if len(pool) < 2:
        raise BadInputError("identify needs at least two images to tell apart, got one; pass distractors")
    distance = mse_matrix(reconstruction, pool)  # [pool, k]
    paired = assignment >= 0
    columns = distance[:, assignment[paired]]
    own = columns[: len(truth)][paired].diagonal()
    rank = torch.full((len(truth),), len(pool) - 1, device=truth.device)
    # BROKEN equals itself everywhere, so it needs its own rule to come last.
    rank[paired] = torch.where(own < BROKEN, (columns < own).sum(0), len(pool) - 1)
    correct = rank == 0
    return Identification(correct, rank, rate=float(correct.float().mean()), chance=1 / len(pool))


def _check_assignment(assignment: Tensor | None, count: int, *, truth: Tensor) -> Tensor:
    if assignment is None:
        assignment = torch.arange(count, device=truth.device)
    if len(assignment) != len(truth):
        raise BadInputError(
            f"identify needs one entry of assignment per truth ({len(truth)}), got {len(assignment)}; "
            "pass Scores.assignment when the counts differ"
        )
    if bool((assignment >= count).any()):
        raise BadInputError(f"assignment points at reconstruction {int(assignment.max())}, but there are only {count}")
    return assignment.to(truth.device)
