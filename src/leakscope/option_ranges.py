"""What the numbers among the options of attacks and defences may be, said once. Needs nothing but Python.

The catalogue refuses a wrong number from here before torch is imported; attacks and defences, which a program may also
build without the catalogue, refuse it by the same rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import SupportsFloat

from leakscope.errors import UsageError


@dataclass(frozen=True)
class Range:
    """Numbers from `least` on, below `below`; without `least` itself where `above_least`.

    Attributes:
        least: The smallest.
        below: The first that is too large; infinity where only that is, None where not even that.
        above_least: Whether `least` itself is too small.
        whole: Whether it is a whole number.
        noun: What kind of number it is, for messages.
        remedy: An example for messages.
    """

    least: float
    below: float | None = math.inf
    above_least: bool = False
    whole: bool = False
    noun: str = ""
    remedy: str = ""

    def check(self, who: str, option: str, value: object) -> None:
        """Refuse a value outside; `who` needs the option."""
        number = value if isinstance(value, int) else float(value) if isinstance(value, SupportsFloat) else math.nan
        large_enough = number > self.least or (number == self.least and not self.above_least)
        inside = large_enough and (self.below is None or number < self.below)
        if not inside or (self.whole and not isinstance(value, int)):
            raise UsageError(f"{who} needs {self._describe(option)}, got {value!r}{self.remedy}")

    def _describe(self, option: str) -> str:
        if self.whole:
            return f"a whole number {option} ≥ {self.least:g}"
        if self.below is None:
            return f"{option} {'>' if self.above_least else '≥'} {self.least:g}"
        if self.below < math.inf:
            return f"{self.least:g} ≤ {option} < {self.below:g}"
        return f"a finite {self.noun}{option} ≥ {self.least:g}"


COUNT, COUNT_OR_ZERO = Range(1, whole=True), Range(0, whole=True)
RATE = Range(0, noun="rate ")
# Options that mean the same wherever they occur.
_EVERYWHERE = {
    "steps": COUNT,
    "restarts": COUNT,
    "retries": COUNT_OR_ZERO,
    "num_examples": COUNT,
    "passes": COUNT,
    "probe": COUNT,
    "width": COUNT,
    "latent": COUNT,
    "weight_steps": COUNT_OR_ZERO,
    "lr": RATE,
}
_DEFENCES = {
    "gaussian-noise": {"sigma": Range(0, remedy="; 0 adds nothing")},
    "laplacian-noise": {"scale": Range(0, remedy="; 0 adds nothing")},
    "prune": {"fraction": Range(0, 1, remedy="; 0.9 shares one entry in ten")},
    "clip": {"norm": Range(0, None, above_least=True)},
    "sealed": {"bound": Range(0, None, above_least=True, remedy="; a power of two, as 16")},
}


def check_attack_option(name: str, option: str, value: object) -> None:
    """Refuse a number that no attack can use; options that are no numbers, or have no rule, pass."""
    if option in _EVERYWHERE:
        _EVERYWHERE[option].check(f"attack {name!r}", option, value)


def check_defence_option(name: str, option: str, value: object) -> None:
    """Refuse a number that the defence cannot use."""
    if option in _DEFENCES.get(name, {}):
        _DEFENCES[name][option].check(name, option, value)
