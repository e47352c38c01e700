"""Identifiability: does a reconstruction point at its own example among many others?

A blurred face may score a low PSNR and still single out one person of a gallery. This is the
question a data protection officer asks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.errors import BadInputError
from leakscope.metrics.assign import BROKEN, mse_matrix


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
    assignment = _checked(assignment, len(reconstruction), truth=truth)
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


def _checked(assignment: Tensor | None, count: int, *, truth: Tensor) -> Tensor:
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
