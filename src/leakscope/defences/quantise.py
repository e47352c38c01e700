"""QSGD: round every entry at random to one of a few levels, so that the mean stays right."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from leakscope import rng as random
from leakscope.attack import Attack
from leakscope.defence import UpdateDefence
from leakscope.errors import UsageError
from leakscope.matching.distances import Rounded
from leakscope.types import Tensors

PAPER = (
    "Alistarh, Grubic, Li, Tomioka, Vojnovic: QSGD: Communication-Efficient SGD via Gradient Quantization, NIPS 2017"
)

# As many bits as a float32 has: nothing is rounded.
ALL_BITS = 32


@dataclass(frozen=True)
class Quantise(UpdateDefence):
    """‖g‖ · sign(g) · ξ per tensor, ξ = |g|·s/‖g‖ rounded to a whole number at random, over s = 2^(bits − 1) − 1.

    Up with the probability of the fraction, else down: the expectation is g. `bits=32` shares the update as it is.
    """

    bits: int
    name: str = "quantise"
    paper: str = PAPER

    def __post_init__(self) -> None:
        whole = isinstance(self.bits, int) and not isinstance(self.bits, bool)
        if not whole or not (2 <= self.bits <= 16 or self.bits == ALL_BITS):
            raise UsageError(
                f"quantise needs 2 to 16 whole bits per entry, or {ALL_BITS} to round nothing, got {self.bits!r}"
            )

    @property
    def levels(self) -> int:
        """Sizes other than zero that an entry can have."""
        return 2 ** (self.bits - 1) - 1

    def adapt(self, attack: Attack) -> Attack:
        """The attacker knows how finely every tensor was rounded, and that every round is rounded afresh."""
        if self.bits == ALL_BITS:
            return attack
        return attack.revised(
            # Rounding at random is noise on every number: all of them are compared.
            lambda recipe: replace(
                recipe, distance=Rounded(recipe.distance, self.levels), joins_rounds=True, steady=None
            )
        )

    def rewrite(self, tensors: Tensors, rng: Generator) -> dict[str, Tensor]:
        """Round every entry at random."""
        if self.bits == ALL_BITS:
            return dict(tensors)
        return {name: _round(value, self.levels, rng) for name, value in tensors.items()}


def quantise(bits: int = 4) -> Quantise:
    """Round every entry at random to 2^(bits − 1) − 1 sizes and a sign; unbiased."""
    return Quantise(bits)


def _round(value: Tensor, levels: int, rng: Generator) -> Tensor:
    # In double precision: many levels of a float32 are closer than its rounding.
    exact = value.double()
    unit = torch.linalg.vector_norm(exact) / levels
    if unit == 0:
        return value
    steps = exact.abs() / unit
    up = random.uniform(tuple(value.shape), rng, like=exact) < steps - steps.floor()
    return (exact.sign() * unit * (steps.floor() + up)).to(value.dtype)
