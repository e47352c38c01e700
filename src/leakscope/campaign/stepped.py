"""How long an attack runs, and the same attack made shorter or repeated more often."""

from __future__ import annotations

import dataclasses
import math

from leakscope.attack import Attack, Effort

# Below this an optimiser has hardly left its start: the result would be noise that looks like protection.
FEWEST_STEPS = 20


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
    own = attack.effort
    return Length(own.steps, own.restarts or 1, own.attempts)


def has_restarts(attack: Attack) -> bool:
    """Whether the attack can be started from several points."""
    return attack.effort.restarts is not None


def resized(
    attack: Attack, *, steps: int | None = None, restarts: int | None = None, retries: int | None = None
) -> Attack:
    """The same attack with another length; what it does not have, or is None, stays as it is."""
    own = attack.effort
    return attack.with_effort(
        Effort(
            own.steps if steps is None else steps,
            own.restarts if restarts is None else restarts,
            own.attempts if retries is None else 1 + retries,
        )
    )


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
