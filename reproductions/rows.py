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


# Called with the scenario under which the server observes: what a row says of its scenario is what is measured.
Measure = Callable[[str, Say], Measured]


@dataclass(frozen=True)
class Row:
    """A named claim and the function that measures it.

    Attributes:
        name: what `--only` asks for.
        network: network, data, size of the batch, and what else was set.
        bar: what must hold.
        measure: the function that measures it.
        scenario: what the server knows, by its letter.
        minutes: of one quiet core, about.
        fails: why the claim is known not to hold; empty where it does.
    """

    name: str
    network: str
    bar: str
    measure: Measure = field(repr=False)
    scenario: str
    minutes: float
    fails: str = ""

    @property
    def setting(self) -> str:
        """Everything that a figure depends on."""
        return f"{self.network}, scenario {self.scenario}"

    def run(self, say: Say) -> Measured:
        """Measure it."""
        return self.measure(self.scenario, say)


def at_least(values: Sequence[float], bar: float, *, note: str = "", unit: str = "dB") -> Measured:
    """Every value reaches the bar."""
    return Measured(tuple(values), min(values) >= bar, note, unit)


def median_at_least(values: Sequence[float], bar: float, *, note: str = "", unit: str = "dB") -> Measured:
    """The median reaches the bar."""
    return Measured(tuple(values), median(values) >= bar, note, unit)
