"""A block that has more equations than inputs, read to the last digit: winners fixed, the system solved, repeated.

Expectation propagation blurs what it is told, or it would not settle. Where its winners are right but for a few that
nearly tie, least squares with the winners held and the winners of its solution take turns, and end at residuals of
the size of rounding. That is also the proof: with wrong winners the system, which is over-determined, has no solution.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from leakscope.matching.pooled.belief import Belief, Prior
from leakscope.matching.pooled.blocks import Block
from leakscope.matching.pooled.evidence import Known, gradient_rows

# Single precision leaves about this much of a maximum, and of the gradient as a share of its size.
_ROUNDING = 1e-6
# Larger residuals are not due to rounding; one wrong winner that matters leaves more.
_SOLVED = 1e-5
_TURNS = 10


def exact(block: Block, known: Known, *, prior: Prior, belief: Belief) -> Belief | None:
    """The inputs that explain every maximum and the whole gradient, near `belief`; None where none are found."""
    # One equation to spare for every winner, or wrong ones would find a solution too.
    if known.gradient.numel() < block.inputs:
        return None
    winners, precision = belief.odds.argmax(2), prior.precision()
    for _ in range(_TURNS):
        rows, values = _system(block, known, winners)
        total = precision + rows.T @ rows / _ROUNDING**2
        lower, failed = torch.linalg.cholesky_ex((total + total.T) / 2)
        if bool(failed):
            return None
        # Inputs that no winner has seen are in no equation, and stay what they were believed to be.
        gap = rows.T @ (values - rows @ belief.mean) / _ROUNDING**2
        mean = belief.mean + torch.cholesky_solve(gap[:, None], lower)[:, 0]
        residual = float((rows @ mean - values).square().mean().sqrt())
        if residual <= _SOLVED:
            covariance = torch.cholesky_inverse(lower) * max(1.0, residual / _ROUNDING) ** 2
            return Belief(mean, covariance, functional.one_hot(winners, belief.odds.shape[2]).to(belief.odds))
        before, winners = winners, _entries(block, mean).argmax(2)
        if torch.equal(before, winners):
            break
    return None


def _system(block: Block, known: Known, winners: Tensor) -> tuple[Tensor, Tensor]:
    """Maxima and gradient as linear equations, the gradient's in shares of its size."""
    outputs, windows = winners.shape
    places = block.columns[:, block.windows.gather(1, winners.T).T].movedim(0, 2)
    rows = known.maxima.new_zeros(outputs, windows, block.inputs)
    rows.scatter_(2, places, block.weight[:, None].expand_as(places))
    size = known.gradient.abs().mean(1, keepdim=True)
    size = size.clamp_min(_ROUNDING * float(size.max()))
    shares = functional.one_hot(winners, block.windows.shape[1]).to(rows) * known.signal[..., None]
    slopes = torch.stack([gradient_rows(block, share) for share in shares]) / size[..., None]
    values = torch.cat([(known.maxima - block.bias[:, None]).flatten(), (known.gradient / size).flatten()])
    return torch.cat([rows.flatten(0, 1), slopes.flatten(0, 1)]), values


def _entries(block: Block, inputs: Tensor) -> Tensor:
    """What each window chooses from, [O, M, k]."""
    return (block.weight @ inputs[block.columns] + block.bias[:, None])[:, block.windows]
