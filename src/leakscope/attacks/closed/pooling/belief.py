"""Expectation propagation over the windows of one block: a Gaussian belief about its inputs, and odds of the winners.

Every window's maximum is known, which is not a Gaussian fact; it is replaced by the Gaussian factor that gives the same
mean and covariance in the company of all others.
T. Minka, "Expectation propagation for approximate Bayesian inference", UAI 2001.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from leakscope.attacks.closed.pooling.gradient_evidence import BlockFacts, gradient_evidence
from leakscope.attacks.closed.pooling.maxima import known_maximum
from leakscope.attacks.closed.pooling.pooled_blocks import PooledBlock

# Half of the old factor stays, as is usual where all factors move at once.
_DAMPING = 0.5
# The prior adapts to a belief, of which there is none at the start.
_ADAPT_FROM = 2
# The gradient is trusted to this share of its size when the tolerance has reached its end.
_GRADIENT_FLOOR = 1e-3


class GaussianPrior(Protocol):
    """A Gaussian over the inputs of a block, which may adapt to what is believed of them."""

    @property
    def mean(self) -> Tensor:
        """Mean [n]."""
        ...

    def precision(self) -> Tensor:
        """Inverse covariance [n, n]."""
        ...

    def adapt(self, mean: Tensor, covariance: Tensor) -> GaussianPrior:
        """The prior as it looks after the belief N(mean, covariance)."""
        ...


@dataclass(frozen=True)
class Sweeps:
    """How often all windows are visited, while the tolerance of the maxima falls from `first` to `last`.

    The gradient is heeded after a share of `gradient_from` of the passes: it needs an idea of the winners. `wary` ones
    trust it less wherever it contradicts the belief.
    """

    count: int
    first: float
    last: float
    gradient_from: float = 0.2
    wary: bool = False

    def tolerance(self, step: int) -> float:
        """Falls by the same factor each time."""
        return self.first * (self.last / self.first) ** (step / max(1, self.count - 1))


@dataclass(frozen=True)
class Belief:
    """N(mean, covariance) about the inputs, and the odds [O, M, k] of each entry to be the largest of its window."""

    mean: Tensor
    covariance: Tensor
    odds: Tensor


@dataclass(frozen=True)
class _Factors:
    """Natural parameters of every window's Gaussian factor: [O·M, k, k] and [O·M, k]; hints [O·M, k]."""

    precision: Tensor
    shift: Tensor
    hints: Tensor


def infer(block: PooledBlock, known: BlockFacts, *, prior: GaussianPrior, passes: Sweeps) -> Belief:
    """The inputs of `block` given what the update says of it.

    Raises:
        torch.linalg.LinAlgError: The facts contradict each other beyond what rounding explains.
    """
    rows = _Rows(block)
    fixed = prior.precision()
    belief = Belief(prior.mean.clone(), torch.linalg.inv(fixed), torch.empty(0))
    outputs, windows, members = len(block.weight), *block.windows.shape
    blank = belief.mean.new_zeros(outputs * windows, members)
    factors = _Factors(torch.diag_embed(blank), blank, blank)
    for step in range(passes.count):
        tolerance = passes.tolerance(step)
        each = known.doubt.flatten().hypot(known.doubt.new_tensor(tolerance))
        factors, scores = _revise(rows, belief, factors, known.maxima.flatten(), each)
        precision, shift = fixed, fixed @ prior.mean
        if step >= passes.gradient_from * passes.count:
            # The gradient must not hear its own echo: its hints are left out of the odds that it is weighed with.
            evidence = gradient_evidence(
                block,
                known,
                odds=scores.softmax(1).reshape(outputs, windows, members),
                mean=belief.mean,
                covariance=belief.covariance,
                tolerance=_GRADIENT_FLOOR * tolerance / passes.last,
                wary=passes.wary,
            )
            precision, shift = precision + evidence.precision, shift + evidence.shift
            hints = torch.lerp(factors.hints, evidence.hints.flatten(0, 1), _DAMPING)
            factors = replace(factors, hints=hints)
        odds = (scores + factors.hints).softmax(1).reshape(outputs, windows, members)
        belief = _combine(rows, factors, precision, shift, odds)
        if step >= _ADAPT_FROM:
            prior = prior.adapt(belief.mean, belief.covariance)
            fixed = prior.precision()
    return belief


class _Rows:
    """z = A x + b of every window entry: the rows of A [O·M·k, n], sparse and dense."""

    def __init__(self, block: PooledBlock) -> None:
        places = block.columns[:, block.windows.flatten()].T
        outputs, entries = len(block.weight), len(places)
        columns = places.repeat(outputs, 1)
        values = block.weight.repeat_interleave(entries, 0)
        self.dense = values.new_zeros(outputs * entries, block.inputs).scatter_(1, columns, values)
        self.sparse = self.dense.to_sparse()
        self.transposed = self.dense.T.contiguous().to_sparse()
        self.columns, self.values, self.members = columns, values, block.windows.shape[1]
        self.bias = block.bias.repeat_interleave(len(block.windows))[:, None]

    def marginals(self, belief: Belief) -> tuple[Tensor, Tensor]:
        """Mean [O·M, k] without the bias and covariance [O·M, k, k] of each window's entries."""
        mean = (self.dense @ belief.mean).unflatten(0, (-1, self.members))
        # Symmetric, so the transpose is the same matrix; factorisations return columns, and the product wants rows.
        half = torch.sparse.mm(self.sparse, belief.covariance.mT.contiguous()).unflatten(0, (-1, self.members))
        columns, values = (each.unflatten(0, (-1, self.members)) for each in (self.columns, self.values))
        each = [
            (half.gather(2, columns[:, None, entry].expand(-1, self.members, -1)) * values[:, None, entry]).sum(2)
            for entry in range(self.members)
        ]
        covariance = torch.stack(each, 2)
        return mean, (covariance + covariance.mT) / 2

    def gather_windows(self, precision: Tensor) -> Tensor:
        """Aᵀ Λ A for Λ made of one block [k, k] per window."""
        scaled = precision @ self.dense.unflatten(0, (-1, self.members))
        return torch.sparse.mm(self.transposed, scaled.flatten(0, 1))


def _revise(
    rows: _Rows, belief: Belief, factors: _Factors, maxima: Tensor, tolerance: Tensor
) -> tuple[_Factors, Tensor]:
    """Every window's new factor: its share is taken out of the belief, the true fact put in, the moments matched."""
    mean, covariance = rows.marginals(belief)
    eye = torch.eye(rows.members).to(mean)
    whole = torch.linalg.inv(covariance + 1e-9 * eye)
    rest = _clip_eigenvalues(whole - factors.precision, low=1e-6)
    without = torch.linalg.inv(rest)
    centre = _times(without, _times(whole, mean) - factors.shift)
    found = known_maximum(centre + rows.bias, without, largest=maxima, hints=factors.hints, tolerance=tolerance)
    precision = _clip_eigenvalues(torch.linalg.inv(found.covariance + 1e-9 * eye) - rest, high=tolerance[:, None] ** -2)
    shift = _times(precision + rest, found.mean - rows.bias) - _times(rest, centre)
    revised = _Factors(
        torch.lerp(factors.precision, precision, _DAMPING), torch.lerp(factors.shift, shift, _DAMPING), factors.hints
    )
    return revised, found.scores


def _combine(rows: _Rows, factors: _Factors, precision: Tensor, shift: Tensor, odds: Tensor) -> Belief:
    total = precision + rows.gather_windows(factors.precision)
    covariance = torch.cholesky_inverse(torch.linalg.cholesky((total + total.T) / 2))
    return Belief(covariance @ (shift + rows.dense.T @ factors.shift.flatten()), covariance, odds)


def _times(matrices: Tensor, vectors: Tensor) -> Tensor:
    return (matrices @ vectors[..., None])[..., 0]


def _clip_eigenvalues(matrices: Tensor, *, low: float = 0.0, high: Tensor | None = None) -> Tensor:
    """Symmetric matrices with eigenvalues cut to [low, high], where `high` is [N, 1]."""
    values, vectors = torch.linalg.eigh((matrices + matrices.mT) / 2)
    values = values.clamp_min(low) if high is None else values.clamp_min(low).minimum(high)
    return (vectors * values[..., None, :]) @ vectors.mT
