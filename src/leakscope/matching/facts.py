"""What an attacker may know of a defence, in terms any attack can use.

A defence states facts about what it does to an update; an attack that has a method
`informed(fact)` returns itself as run by someone who knows. Neither imports the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from leakscope.types import Attack


@dataclass(frozen=True)
class Noise:
    """Independent noise of this variance was added to every entry."""

    variance: float


@dataclass(frozen=True)
class Sparse:
    """Entries were set to zero before sharing; the others are exact."""


@dataclass(frozen=True)
class Bounded:
    """The whole update was scaled down to a norm bound."""


Fact = Noise | Sparse | Bounded


@runtime_checkable
class Informable(Protocol):
    """An attack that can make use of facts."""

    def informed(self, fact: Fact) -> Attack:
        """Return the attack as run by someone who knows `fact`."""
        ...


def inform(attack: Attack, fact: Fact) -> Attack:
    """`attack` knowing `fact`; unchanged where it cannot use it."""
    return attack.informed(fact) if isinstance(attack, Informable) else attack
