"""Rows of a linear layer's gradient: each is Σ_j δ_ij x_j over the examples, and its bias entry Σ_j δ_ij.

A row that one example alone reached is that example times its bias entry. Two such rows give the
same quotient, while rows that mix examples, in proportions of their own, agree with none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope import rng as random

# Each is two products with the layer; noise of a tenth of the signal is settled after three.
_ALTERNATIONS = 20


@dataclass(frozen=True, eq=False)
class Agreement:
    """Rows whose quotients agree, and the input they agree on."""

    rows: Tensor
    inputs: Tensor


def quotient(weight: Tensor, bias: Tensor) -> Tensor:
    """The row with the largest bias entry, divided by it: that row loses least to rounding."""
    row = bias.abs().argmax()
    return weight[row] / bias[row]


def least_squares(weight: Tensor, bias: Tensor) -> Tensor:
    """Σ δ_i g_i / Σ δ_i²: all rows weighed together, which averages noise."""
    return (bias @ weight) / bias.square().sum()


def rank_one(weight: Tensor, bias: Tensor) -> Tensor:
    """x of the δ and x that come closest to the shared entries: min ‖[G_W, g_b] − δ [x, 1]ᵀ‖ over those not zeroed.

    Alternating least squares from the bias entries. All of the layer tells δ, not its bias alone: noise in δ no longer
    shrinks x, rows whose bias entry was zeroed count too, and what was zeroed of one row is read off others. An input
    of which nothing was shared is 0.
    """
    entries = torch.cat([weight, bias[:, None]], 1)
    shared = (entries != 0).to(entries)
    inputs, deltas = entries.new_zeros(entries.shape[1]), bias
    for _ in range(_ALTERNATIONS):
        inputs = (deltas @ entries) / (deltas.square() @ shared).clamp_min(1e-30)
        deltas = (entries @ inputs) / (shared @ inputs.square()).clamp_min(1e-30)
    return inputs[:-1] / inputs[-1]


def agreements(weight: Tensor, bias: Tensor) -> list[Agreement]:
    """Groups of two or more rows with the same quotient, the largest first.

    Quotients are sorted by one random projection, so that only neighbours have to be compared.
    """
    scale = bias.abs().max()
    rows = (bias.abs() > torch.finfo(bias.dtype).eps * scale).nonzero().flatten()
    quotients = weight[rows] / bias[rows, None]
    direction = random.normal((weight.shape[1],), random.generator(0, "rows"), like=weight)
    order = (quotients @ (direction / direction.norm())).argsort()
    groups = list(_runs(quotients[order]))
    found = [Agreement(rows[order[group]], weight.new_empty(0)) for group in groups if len(group) > 1]
    return sorted(
        (Agreement(one.rows, least_squares(weight[one.rows], bias[one.rows])) for one in found),
        key=lambda one: -len(one.rows),
    )


def _runs(quotients: Tensor) -> Iterator[list[int]]:
    """Consecutive quotients that equal the first of their run up to rounding."""
    # A quotient of two rounded sums is off by several roundings; different images are further apart by far.
    tolerance = torch.finfo(quotients.dtype).eps ** 0.5
    run: list[int] = []
    for place, value in enumerate(quotients):
        if run and float((value - quotients[run[0]]).norm()) > tolerance * float(value.norm()):
            yield run
            run = []
        run.append(place)
    if run:
        yield run
