"""Policies of the transformation search: "3-1-7" applies 3, then 1, then 7; "3-1-7+43-18-18" draws one of two."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from leakscope.errors import UsageError
from leakscope.operations.library import IDENTITY, LIBRARY, NUMBER_OF_OPERATIONS, Entry, first_equal

_HOW = "write numbers joined by '-', as in 3-1-7, and policies to draw from joined by '+', as in 3-1-7+43-18-18"
_EMPTY = f"{_HOW}; 28 leaves pictures alone"
# Every shift may have gone either way: an attacker has to tell 2^k chains apart.
_LONGEST = 6
_WRITTEN = re.compile(r"[0-9][0-9\s+-]*")
_MOST_DIGITS, _MOST_SHOWN = 9, 80


@dataclass(frozen=True, order=True)
class Policy:
    """Sequences of operations by number, of which every picture draws one each time it is read.

    Equality is that of the numbers as written; `canonical()` of two policies is equal where they do the same.
    """

    parts: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.parts or not all(self.parts):
            raise UsageError(f"a policy of transformations is empty in {self.parts!r}; {_EMPTY}")
        if (length := max(map(len, self.parts))) > _LONGEST:
            raise UsageError(
                f"a policy has at most {_LONGEST} operations, got {length}; the published ones, as 3-1-7, have up to 3"
            )
        for index in (index for part in self.parts for index in part):
            if not 0 <= index < NUMBER_OF_OPERATIONS:
                raise UsageError(
                    f"there is no operation {index}; the library has numbers 0 to {NUMBER_OF_OPERATIONS - 1}; "
                    "leave an empty slot out"
                )

    @classmethod
    def parse(cls, text: str | int | Policy) -> Policy:
        """Read a policy; one operation may be given as its number."""
        if isinstance(text, Policy):
            return text
        if isinstance(text, bool) or not isinstance(text, str | int):
            raise UsageError(f"cannot read the policy {text!r}; {_HOW}")
        return cls(tuple(_read_part(part, text) for part in str(text).split("+")))

    def __str__(self) -> str:
        return "+".join("-".join(map(str, part)) for part in self.parts)

    @property
    def entries(self) -> tuple[tuple[Entry, ...], ...]:
        """The operations of every part."""
        return tuple(tuple(LIBRARY[index] for index in part) for part in self.parts)

    @property
    def is_identity(self) -> bool:
        """Whether it leaves every picture alone."""
        return all(entry.is_identity for part in self.entries for entry in part)

    def canonical(self) -> Policy:
        """The same policy in one form: lowest numbers, no identities, parts in order and no more than needed."""
        counts = Counter(_reduce(part) for part in self.parts)
        least = math.gcd(*counts.values())
        return Policy(tuple(part for part in sorted(counts) for _ in range(counts[part] // least)))


def is_written_as_policy(text: str) -> bool:
    """Whether `text` is a policy by numbers rather than by names of operations."""
    return _WRITTEN.fullmatch(text.strip()) is not None


def _reduce(part: Sequence[int]) -> tuple[int, ...]:
    return tuple(first_equal(index) for index in part if not LIBRARY[index].is_identity) or (IDENTITY,)


def _read_part(part: str, whole: object) -> tuple[int, ...]:
    text = part.strip()
    if not text:
        raise UsageError(f"a policy of transformations is empty in {str(whole)!r}; {_EMPTY}")
    if text.startswith("-"):
        raise UsageError(f"a negative number in the policy {str(whole)!r}; {_HOW}; leave an empty slot out")
    numbers = [number.strip() for number in text.split("-")]
    # Longer ones are no number of an operation, and Python refuses to read thousands of digits.
    if not all(number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS for number in numbers):
        raise UsageError(f"cannot read the policy {str(whole)[:_MOST_SHOWN]!r}; {_HOW}")
    return tuple(int(number) for number in numbers)
