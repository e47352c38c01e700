"""How large the counts may be that a file, a configuration or a caller declares.

A number of a few bytes must not start a loop without end: what is beyond these limits is refused with one typed error.
"""

from __future__ import annotations

import math
from typing import SupportsIndex

from leakscope.errors import UnsuitableError, UsageError

# A pass over 100,000 examples one by one is inside.
MOST_STEPS = 100_000
MOST_EXAMPLES = 10**9
# Positions in all local steps together; as Python numbers they take about 400 MB.
MOST_POSITIONS = 10_000_000
# Local steps that an attack simulates to predict one update; it does so at each of its own steps, and a thousand take
# seconds on the smallest networks.
MOST_SIMULATED_STEPS = 1_000
# Labels that are read off an update.
MOST_LABELS = 1_000_000
# Numbers in one reconstruction: 1 GB in single precision, and an optimiser keeps several of that size.
MOST_REBUILT = 2**28


def check_count(value: object, label: str, *, most: int) -> None:
    """Refuse everything but a whole number from 1 to `most`; `label` says in the message what is counted."""
    # As numpy's whole numbers are; a bool is a whole number to Python alone.
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or (count := value.__index__()) < 1:
        raise UsageError(f"{label} must be a whole number ≥ 1, got {value!r}")
    if count > most:
        raise UsageError(f"{label} must be at most {most:,}, got {show_count(count)}; correct it")


def check_rebuildable(examples: int, *, size: int, numbers: int) -> None:
    """Refuse to rebuild more than an update can hold, or than memory can.

    Args:
        examples: How many are to be rebuilt.
        size: Numbers in one of them.
        numbers: Numbers in the update.
    """
    if examples > numbers:
        raise UnsuitableError(
            f"an update of {numbers:,} numbers cannot hold {show_count(examples)} examples: not even one number of "
            "each could be rebuilt; correct the number of examples"
        )
    if examples * size > MOST_REBUILT:
        raise UnsuitableError(
            f"{examples:,} examples of {size:,} numbers are {show_count(examples * size)} numbers, at most "
            f"{MOST_REBUILT:,} can be rebuilt at once; correct the number of examples"
        )


def show_count(value: int) -> str:
    """A count for a message; Python refuses to write out very long numbers."""
    return f"{value:,}" if value < 10**18 else f"about 10^{int(value.bit_length() * math.log10(2))}"
