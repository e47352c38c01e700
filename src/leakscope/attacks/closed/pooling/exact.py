"""A block that has more equations than inputs, read to the last digit: winners fixed, the system solved, repeated.

Expectation propagation blurs what it is told, or it would not settle. Where its winners are right except for a few that
nearly tie, least squares with the winners held and the winners of its solution take turns. A wrong winner spoils one
maximum and the gradient of its filter, so equations that are explained badly count less in the next turn, as in
iteratively reweighted least squares, and the other filters put it right. That usually ends at residuals of the size of
rounding, which is also the proof: with wrong winners the system, which is over-determined, has no solution.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from leakscope.attacks.closed.pooling.belief import Belief, GaussianPrior
from leakscope.attacks.closed.pooling.gradient_evidence import BlockFacts, gradient_rows
from leakscope.attacks.closed.pooling.pooled_blocks import PooledBlock

# Single precision leaves about this much of a maximum, and of the gradient as a share of its size.
_ROUNDING = 1e-6
# Larger residuals are not due to rounding; one wrong winner that matters leaves more.
_SOLVED = 1e-5
_TURNS = 12
# Equations are weighed twice before winners are revised: the first solution after a change is the least trustworthy.
_HELD = 2


@dataclass(frozen=True, eq=False)
class _System:
    """Linear equations rows @ inputs = values."""

    rows: Tensor
    values: Tensor

    def residuals(self, inputs: Tensor) -> Tensor:
        return self.rows @ inputs - self.values

    def solve(self, doubt: Tensor, *, near: Tensor, precision: Tensor) -> tuple[Tensor, Tensor] | None:
        """Least squares with a deviation for every equation, and the Cholesky factor of the solution's precision."""
        scaled = self.rows / doubt[:, None]
        total = precision + scaled.T @ scaled
        lower, failed = torch.linalg.cholesky_ex((total + total.T) / 2)
        if bool(failed):
            return None
        # Inputs that no winner has seen are in no equation, and stay what they were believed to be.
        gap = scaled.T @ (-self.residuals(near) / doubt)
        return near + torch.cholesky_solve(gap[:, None], lower)[:, 0], lower


def exact(block: PooledBlock, known: BlockFacts, *, prior: GaussianPrior, belief: Belief) -> Belief | None:
    """The inputs that explain every maximum and the whole gradient, near `belief`; None where none are found."""
    # One equation to spare for every winner, or wrong ones would find a solution too.
    if known.gradient.numel() < block.inputs:
        return None
    winners, precision = belief.odds.argmax(2), prior.precision()
    system = _system(block, known, winners)
    alike = doubt = torch.full_like(system.values, _ROUNDING)
    for turn in range(1, _TURNS + 1):
        solution = system.solve(doubt, near=belief.mean, precision=precision)
        if solution is None:
            return None
        mean, lower = solution
        # Unweighted: every equation has to hold, however little it counted.
        residual = float(system.residuals(mean).square().mean().sqrt())
        if residual <= _SOLVED and doubt is alike:
            covariance = torch.cholesky_inverse(lower) * max(1.0, residual / _ROUNDING) ** 2
            return Belief(mean, covariance, functional.one_hot(winners, belief.odds.shape[2]).to(belief.odds))
        if turn % _HELD == 0 and residual > _SOLVED:
            winners = _entries(block, mean).argmax(2)
            system = _system(block, known, winners)
        # A solution that was found with unequal weights is found once more with equal ones, to the last digit.
        doubt = alike if residual <= _SOLVED else _doubt(system.residuals(mean), known)
    return None


def _doubt(residuals: Tensor, known: BlockFacts) -> Tensor:
    """How far off each equation is: a maximum by itself, a filter's gradient as a whole, at least by rounding."""
    maxima, gradient = residuals.split([known.maxima.numel(), known.gradient.numel()])
    filters = gradient.reshape(known.gradient.shape).square().mean(1, keepdim=True).sqrt()
    return torch.cat([maxima.abs(), filters.expand_as(known.gradient).flatten()]).clamp_min(_ROUNDING)


def _system(block: PooledBlock, known: BlockFacts, winners: Tensor) -> _System:
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
    return _System(torch.cat([rows.flatten(0, 1), slopes.flatten(0, 1)]), values)


def _entries(block: PooledBlock, inputs: Tensor) -> Tensor:
    """What each window chooses from, [O, M, k]."""
    return (block.weight @ inputs[block.columns] + block.bias[:, None])[:, block.windows]
