"""What a server kept between handing out a model and reading the update."""

from __future__ import annotations

from typing import TypeVar

from leakscope.errors import UnsuitableError
from leakscope.types import Observation

_Kind = TypeVar("_Kind")


def kept_secret(seen: Observation, kind: type[_Kind], *, attack: str) -> _Kind:
    """The secret of this round.

    Raises:
        UnsuitableError: there is none, or it is another attack's.
    """
    if isinstance(seen.secret, kind):
        return seen.secret
    raise UnsuitableError(
        f"{attack} needs the update of a model that it crafted itself, with the secret it kept; use ls.audit, or give "
        "Observation.secret what craft returned"
    )
