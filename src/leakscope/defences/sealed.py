"""Sealing: the server adds up updates that it cannot read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from torch import Generator

from leakscope.attack import Attack
from leakscope.defence import ClientHooks, Defence
from leakscope.defences.chain import Chain
from leakscope.option_ranges import check_defence_option
from leakscope.sealed import SealingKey, keygen, seal
from leakscope.types import SealedUpdate, SharedUpdate

PAPER = (
    "Ren: Gradient Leakage and Protection for Federated Learning, PhD thesis, Swansea University, 2023, chapter 4 "
    "(FedBoosting: Ren, Deng, Xie, Ma, Wang 2022); Paillier, EUROCRYPT 1999; Cheon, Kim, Kim, Song, ASIACRYPT 2017"
)


@dataclass(frozen=True)
class Sealed(Defence):
    """Encrypts the finished update with a key that the server does not have.

    A server reads nothing. Whoever holds the key reads the sum of all clients, and together with the server every
    single update: an audit measures both beside the status.
    """

    scheme: str = "ckks"
    bound: float = 16.0
    name: str = "sealed"
    paper: str = PAPER

    def __post_init__(self) -> None:
        check_defence_option("sealed", "bound", self.bound)

    def hooks(self) -> ClientHooks:
        """Act on the finished update."""
        return ClientHooks(update=self._seal)

    def unsealed(self) -> Defence:
        """Nothing: opened, an update is what the client computed."""
        return Chain(())

    def adapt(self, attack: Attack) -> Attack:
        """Knowing that an update is sealed does not help to open it."""
        return attack

    def _seal(self, update: SharedUpdate, rng: Generator) -> SealedUpdate:
        # Not from `rng`: what can be drawn again hides nothing.
        return seal(update, _public_key(self.scheme, self.bound))


@lru_cache(maxsize=2)
def _public_key(scheme: str, bound: float) -> SealingKey:
    """A key of this process whose secret half is forgotten: nothing that is sealed here will be opened."""
    return keygen(scheme, bound=bound).public


def sealed(scheme: str = "ckks", *, bound: float = 16.0) -> Sealed:
    """Encrypt the update, so that the server can add it up but not read it."""
    return Sealed(scheme, bound)
