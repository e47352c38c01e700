"""What a convolution's weight gradient says, while it is uncertain which patches made it.

∂L/∂W[o] = Σ_m δ[o, m] · patch(winner of window m): linear in the inputs if the winners are known. Where they are
not, the mean over the winners takes their place, and what they may add or take away is noise of known covariance.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.attacks.closed.pooling.pooled_blocks import PooledBlock

# No single window may be settled by one look at the gradient.
_LOUDEST = 20.0


@dataclass(frozen=True)
class BlockFacts:
    """What the update says of a block: window maxima and backward signal [O, M], and weight gradient [O, P].

    `doubt` [O, M] is the deviation of maxima that were themselves read with some uncertainty.
    """

    maxima: Tensor
    signal: Tensor
    gradient: Tensor
    doubt: Tensor


@dataclass(frozen=True)
class Evidence:
    """About the inputs in natural parameters [n, n] and [n]; about the winners as log-odds [O, M, k]."""

    precision: Tensor
    shift: Tensor
    hints: Tensor


def gradient_evidence(
    block: PooledBlock,
    known: BlockFacts,
    *,
    odds: Tensor,
    mean: Tensor,
    covariance: Tensor,
    tolerance: float,
    wary: bool = False,
) -> Evidence:
    """Weigh the weight gradient, given `odds` [O, M, k] of the winners and the belief N(mean, covariance).

    If `wary`, an output's gradient is doubted by as much more as it is explained worse than the belief allows: the
    belief is surer than it should be, and a gradient that is trusted all the same makes it worse.
    """
    noise = _noise(block, known, odds, covariance)
    patches = mean[block.columns][:, block.windows]
    precision, shift, hints = torch.zeros_like(covariance), torch.zeros_like(mean), []
    for channel, share in enumerate(odds):
        signal, gradient = known.signal[channel], known.gradient[channel]
        rows = gradient_rows(block, signal[:, None] * share)
        average = (patches * share).sum(2, keepdim=True)
        effect = (patches - average) * signal[:, None]
        spread = (effect * share.sqrt()).flatten(1)
        floor = (tolerance * gradient.abs().mean()).square().clamp_min(1e-30)
        doubt = noise[channel] + spread @ spread.T + floor * torch.eye(len(rows)).to(rows)
        believed, gap = rows @ covariance @ rows.T, gradient - rows @ mean
        if wary:
            doubt = doubt * max(1.0, float(gap @ torch.linalg.solve(doubt + believed, gap)) / len(gap))
        certain = torch.linalg.solve(doubt, rows)
        precision += rows.T @ certain
        shift += certain.T @ gradient
        hints.append(_hints(doubt + believed, gap, effect))
    return Evidence(precision, shift, torch.stack(hints).clamp(-_LOUDEST, _LOUDEST))


def gradient_rows(block: PooledBlock, weights: Tensor) -> Tensor:
    """The gradient of one output as a linear map of the inputs, [P, n]; `weights` [M, k] count the windows' entries."""
    each = weights.new_zeros(block.columns.shape[1])
    each[block.windows.flatten()] = weights.flatten()
    rows = weights.new_zeros(len(block.columns), block.inputs)
    return rows.scatter_(1, block.columns, each.expand_as(block.columns))


def _noise(block: PooledBlock, known: BlockFacts, odds: Tensor, covariance: Tensor) -> Tensor:
    """Covariance [O, P, P] of what uncertain winners add, from the uncertainty of the patches themselves."""
    members = block.windows.shape[1]
    patch = len(block.columns)
    share = torch.diag_embed(odds) - odds[..., :, None] * odds[..., None, :]
    weights = known.signal.square()[..., None, None] * share
    total = weights.new_zeros(len(odds), patch * patch)
    for first in range(members):
        for second in range(members):
            left, right = (block.columns[:, block.windows[:, entry]].T for entry in (first, second))
            pairs = covariance[left[:, :, None], right[:, None, :]]
            total += weights[:, :, first, second] @ pairs.flatten(1)
    square = total.unflatten(1, (patch, patch))
    return (square + square.mT) / 2


def _hints(covariance: Tensor, gap: Tensor, effect: Tensor) -> Tensor:
    """How much better the gradient is explained if the patch of a window is that of one entry, not the mean."""
    solved = torch.linalg.solve(covariance, effect.flatten(1)).view_as(effect)
    return torch.einsum("p,pmk->mk", gap, solved) - 0.5 * (effect * solved).sum(0)
