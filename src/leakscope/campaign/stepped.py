"""How long an attack runs, and the same attack made shorter or repeated more often.

Most attacks are frozen dataclasses with a field `steps`, and that is enough. One whose length is
spread over several fields implements `Stepped`; one without steps is a closed form.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Protocol, runtime_checkable

from leakscope.errors import UsageError
from leakscope.types import Attack

# Below this an optimiser has hardly left its start: the result would be noise that looks like protection.
FEWEST_STEPS = 20


@runtime_checkable
class Stepped(Protocol):
    """An attack that can be run for another number of steps."""

    @property
    def steps(self) -> int:
        """How many steps it runs for."""
        ...

    def with_steps(self, steps: int) -> Attack:
        """The same attack for `steps` steps."""
        ...


@dataclasses.dataclass(frozen=True)
class Length:
    """What a run of an attack consists of; `steps` is None for a closed form.

    `attempts` is how often it may run before it gives up: 1 and its retries.
    """

    steps: int | None
    restarts: int = 1
    attempts: int = 1


def length_of(attack: Attack) -> Length:
    """The length an attack has by its own settings."""
    own = attack.steps if isinstance(attack, Stepped) else _field(attack, "steps")
    return Length(own, _field(attack, "restarts") or 1, 1 + (_field(attack, "retries") or 0))


def has_restarts(attack: Attack) -> bool:
    """Whether the attack can be started from several points."""
    return _field(attack, "restarts") is not None


def resized(
    attack: Attack, *, steps: int | None = None, restarts: int | None = None, retries: int | None = None
) -> Attack:
    """The same attack with another length; what it does not have, or is None, stays as it is."""
    if steps is not None and isinstance(attack, Stepped):
        attack, steps = attack.with_steps(steps), None
    wanted = {"steps": steps, "restarts": restarts, "retries": retries}
    changes: dict[str, Any] = {
        name: value for name, value in wanted.items() if value is not None and _field(attack, name) is not None
    }
    if not changes:
        return attack
    try:
        return dataclasses.replace(attack, **changes)  # type: ignore[type-var]
    except (TypeError, ValueError) as error:
        raise UsageError(f"attack {attack.name!r} cannot be run with {changes}: {error}") from error


def shortened(attack: Attack, *, steps: int, of: int, restarts: int | None = None) -> Attack:
    """The attack at `steps` / `of` of its own length.

    A share and not a number: the attacker who knows a defence may run for another length than
    the one who does not, and both must be cut alike.
    """
    own = length_of(attack).steps
    return resized(attack, steps=None if own is None else scaled(own, steps=steps, of=of), restarts=restarts)


def scaled(own: int, *, steps: int, of: int) -> int:
    """`steps` / `of` of `own` steps, rounded up, never below the least that makes sense."""
    return min(own, max(FEWEST_STEPS, math.ceil(own * steps / of)))


def _field(attack: Attack, name: str) -> int | None:
    """A whole number among the fields of a dataclass; None where there is none."""
    if not dataclasses.is_dataclass(attack) or name not in {field.name for field in dataclasses.fields(attack)}:
        return None
    value = getattr(attack, name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
