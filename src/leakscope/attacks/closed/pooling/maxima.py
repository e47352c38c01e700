"""Gaussian numbers of which the largest is known: who it was, and what that says about all of them.

Each of a window's k entries may be the largest one. If entry j is, it equals the known value and the others lie below.
The probability of that and the moments under it come from the sequential simulator of Geweke, Hajivassiliou and Keane.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_POINTS = 64
# Beyond this many deviations the tail of the normal distribution has no digits left.
_TAIL = 30.0


@dataclass(frozen=True)
class Maxima:
    """Per window: log-odds [N, k] of each entry being the largest, mean [N, k] and covariance [N, k, k]."""

    scores: Tensor
    mean: Tensor
    covariance: Tensor


def known_maximum(mean: Tensor, covariance: Tensor, *, largest: Tensor, hints: Tensor, tolerance: Tensor) -> Maxima:
    """Moments of N(mean, covariance) given that the largest of each row is `largest` [N].

    `hints` are log-odds from elsewhere that entry j is the largest; they shape the moments and are not in `scores`.
    `tolerance` [N] is the deviation with which the largest value is known.
    """
    count = mean.shape[1]
    cases = [_case(mean, covariance, largest, entry, tolerance) for entry in range(count)]
    scores = torch.stack([case[0] for case in cases], 1)
    means = torch.stack([case[1] for case in cases], 1)
    spreads = torch.stack([case[2] for case in cases], 1)
    odds = torch.softmax(scores + hints, 1)
    centre = (odds[..., None] * means).sum(1)
    apart = means - centre[:, None]
    spread = (odds[..., None, None] * (spreads + apart[..., :, None] * apart[..., None, :])).sum(1)
    return Maxima(scores, centre, spread)


def _case(mean: Tensor, covariance: Tensor, largest: Tensor, entry: int, tolerance: Tensor) -> tuple[Tensor, ...]:
    """Log-probability and moments where `entry` is the largest."""
    count = mean.shape[1]
    others = torch.tensor([other for other in range(count) if other != entry], device=mean.device)
    variance = covariance[:, entry, entry] + tolerance**2
    gain = covariance[:, :, entry] / variance[:, None]
    gap = largest - mean[:, entry]
    centre = mean + gain * gap[:, None]
    spread = covariance - gain[:, :, None] * covariance[:, None, entry, :]
    eye = torch.eye(count - 1, dtype=mean.dtype, device=mean.device)
    inner = spread[:, others][:, :, others] + (1e-10 + 1e-6 * covariance[:, entry, entry])[:, None, None] * eye
    draws, weights = _below(centre[:, others], inner, largest + tolerance)
    chance = torch.logsumexp(weights, 1) - math.log(_POINTS)
    share = torch.softmax(weights, 1)
    middle = (share[..., None] * draws).sum(1)
    apart = draws - middle[:, None]
    centre[:, others] = middle
    joint = torch.zeros_like(covariance)
    joint[:, others[:, None], others[None, :]] = torch.einsum("ns,nsa,nsb->nab", share, apart, apart)
    joint[:, entry, entry] = spread[:, entry, entry].clamp_min(0)
    return chance - 0.5 * gap.square() / variance - 0.5 * variance.log(), centre, joint


def _below(mean: Tensor, covariance: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
    """Draws [N, S, d] of N(mean, covariance) below `bound` in every entry, and their log-weights [N, S]."""
    size = mean.shape[1]
    lower, points = torch.linalg.cholesky_ex(covariance)[0], _spread_points(size, mean)
    drawn: list[Tensor] = []
    weights = mean.new_zeros(len(mean), _POINTS)
    for entry in range(size):
        given = mean[:, entry, None] + sum(lower[:, entry, i, None] * drawn[i] for i in range(entry))
        room = ((bound[:, None] - given) / lower[:, entry, entry, None].clamp_min(1e-9)).clamp(-_TAIL, _TAIL)
        weights = weights + torch.special.log_ndtr(room)
        reached = (points[:, entry] * torch.special.ndtr(room)).clamp(1e-250, 1 - 1e-12)
        drawn.append(torch.special.ndtri(reached))
    return mean[:, None] + torch.einsum("nab,nsb->nsa", lower, torch.stack(drawn, 2)), weights


def _spread_points(size: int, like: Tensor) -> Tensor:
    """Evenly spread points in the unit cube: multiples of the powers of the generalised golden ratio."""
    ratio = 2.0
    for _ in range(40):
        ratio = (1 + ratio) ** (1 / (size + 1))
    steps = torch.tensor([ratio ** -(i + 1) for i in range(size)], dtype=like.dtype, device=like.device)
    counted = torch.arange(1, _POINTS + 1, dtype=like.dtype, device=like.device)
    return ((0.5 + counted[:, None] * steps) % 1).clamp(1e-5, 1 - 1e-5)
