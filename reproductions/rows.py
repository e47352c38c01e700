"""One claim: how it is measured, and what must hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

Say = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """What a row found: one number per image or seed, whether the claim holds, and what else to say."""

    values: tuple[float, ...]
    holds: bool
    note: str = ""
    unit: str = "dB"

    @property
    def middle(self) -> float:
        """Median of the values."""
        return median(self.values)

    @property
    def worst(self) -> float:
        """The value an attacker would be least pleased with."""
        return min(self.values) if self.unit in ("dB", "share", "ratio") else max(self.values)


@dataclass(frozen=True)
class Row:
    """A named claim and the function that measures it."""

    name: str
    setting: str
    bar: str
    measure: Callable[[Say], Measured] = field(repr=False)


def at_least(values: Sequence[float], bar: float, *, note: str = "", unit: str = "dB") -> Measured:
    """Every value reaches the bar."""
    return Measured(tuple(values), min(values) >= bar, note, unit)


def median_at_least(values: Sequence[float], bar: float, *, note: str = "", unit: str = "dB") -> Measured:
    """The median reaches the bar."""
    return Measured(tuple(values), median(values) >= bar, note, unit)
