"""The two halves of a key: what seals goes to everyone, what opens stays with whoever made it."""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from leakscope.errors import UsageError

Values = NDArray[np.float64]


class PayloadError(Exception):
    """Ciphertexts that cannot be used: at which place of those given, why in a word, and why in a sentence."""

    def __init__(self, place: int, reason: str, why: str) -> None:
        super().__init__(why)
        self.place, self.reason, self.why = place, reason, why


@dataclass(frozen=True)
class SealingLimits:
    """What all who use a key have agreed on.

    Attributes:
        bound: largest magnitude of a value, a power of two.
        pieces: largest sum of whole-number weights.
        clients: how many updates may be added up.
    """

    bound: float = 16.0
    pieces: int = 2**18
    clients: int = 1024

    def __post_init__(self) -> None:
        for name, value in (("pieces", self.pieces), ("clients", self.clients)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} must be a whole number ≥ 1, got {value!r}")
        if self.pieces < self.clients:
            raise UsageError(
                f"pieces must be ≥ clients, or some would count nothing; got {self.pieces} and {self.clients}"
            )
        if not 0 < self.bound < math.inf or math.frexp(self.bound)[0] != 0.5:
            raise UsageError(f"bound must be a power of two, got {self.bound!r}; 16 seals values from −16 to 16")


class SealingKey(ABC):
    """The public half: seals values and adds up what was sealed; it cannot open anything.

    Attributes:
        scheme: what `SealedUpdate.scheme` says.
        limits: what may be sealed and added up.
    """

    scheme: str
    limits: SealingLimits

    @property
    def fingerprint(self) -> str:
        """Which key it is, in 32 hexadecimal digits."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:32]

    def to_json(self) -> str:
        """The public key as text, for those who seal and those who add up; `load_public` reads it."""
        return json.dumps(
            {"leakscope": "public key", "scheme": self.scheme, "limits": asdict(self.limits)} | self._fields(),
            sort_keys=True,
        )

    @property
    @abstractmethod
    def precision(self) -> float:
        """How far an opened weighted mean may be from that of the values sealed, weights aside."""

    @abstractmethod
    def encrypt(self, values: Values) -> bytes:
        """Ciphertexts of finite values within the bound; never twice the same."""

    @abstractmethod
    def check(self, payload: bytes, *, count: int) -> None:
        """Insist on ciphertexts of `count` values as this key makes them; whose values they are nobody can tell.

        Raises:
            PayloadError: it is something else.
        """

    @abstractmethod
    def add(self, payloads: Sequence[bytes], numbers: Sequence[int], *, count: int) -> bytes:
        """Ciphertexts of Σ kᵢ xᵢ.

        Raises:
            PayloadError: a payload is not what `count` values sealed with this key are.
        """

    @abstractmethod
    def _fields(self) -> dict[str, Any]:
        """What `to_json` writes besides scheme and limits."""


class OpeningKeys(ABC):
    """Both halves. The secret one appears in no repr, cannot be pickled or copied, and is stored only by `save`."""

    @property
    @abstractmethod
    def public(self) -> SealingKey:
        """What goes to everyone."""

    @abstractmethod
    def decrypt(self, payload: bytes, *, count: int, pieces: int) -> Values:
        """Σ kᵢ xᵢ / pieces, fit to leave whoever holds the keys.

        Raises:
            PayloadError: what was opened cannot be such a sum.
        """

    @abstractmethod
    def secret_fields(self) -> dict[str, Any]:
        """What a key file holds of the secret half. Never sent, never logged."""

    def count_at(self, path: Path) -> None:
        """Count what is opened in that file from now on; a scheme whose openings need no count leaves it alone."""
        return

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.public.scheme} {self.public.fingerprint[:8]}, secret half not shown>"

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            "opening keys are neither pickled nor copied, so that no secret travels along by accident; send "
            "keys.public, or store them with leakscope.federated.save_keys"
        )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        self.__reduce__()
