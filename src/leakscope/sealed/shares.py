"""Weights as whole numbers: all that a server can multiply a ciphertext with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from leakscope.errors import UsageError


@dataclass(frozen=True)
class Shares:
    """Whole numbers kᵢ ≥ 0 that stand for weights: wᵢ ≈ weight · kᵢ / pieces, and Σ kᵢ = pieces."""

    numbers: tuple[int, ...]
    pieces: int
    weight: float

    def error(self, weights: Sequence[float]) -> list[float]:
        """How far the weight that is really used is from the one that was asked for, of every client."""
        exact = Fraction(self.weight) / self.pieces
        return [
            abs(float(exact * number - Fraction(weight))) for number, weight in zip(self.numbers, weights, strict=True)
        ]


def apportion(weights: Sequence[float], pieces: int) -> Shares:
    """Divide `pieces` in proportion to `weights` by largest remainders, so that nothing is lost.

    Rounding every wᵢ · pieces by itself does not keep the sum: three equal clients and 100 pieces make 99. Here each is
    rounded down first, and what is left goes to the largest remainders, earlier clients first. A common factor of all
    numbers is taken out: equal clients are then only added up, which is cheaper and the same.

    Example:
        >>> apportion([1, 1, 1], 100).numbers
        (34, 33, 33)
        >>> apportion([1, 1], 100)
        Shares(numbers=(1, 1), pieces=2, weight=2.0)
    """
    total = _check(weights)
    exact = [Fraction(weight) * pieces / total for weight in weights]
    numbers = [math.floor(one) for one in exact]
    order = sorted(range(len(exact)), key=lambda place: (numbers[place] - exact[place], place))
    for place in order[: pieces - sum(numbers)]:
        numbers[place] += 1
    common = math.gcd(*numbers)
    return Shares(tuple(number // common for number in numbers), pieces // common, float(total))


def _check(weights: Sequence[float]) -> Fraction:
    """The sum of finite weights ≥ 0."""
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
        raise UsageError(f"combining needs finite weights ≥ 0 with a positive sum, got {list(weights)}")
    return sum((Fraction(weight) for weight in weights), Fraction(0))
