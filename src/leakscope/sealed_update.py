"""An update as its receiver has it when it cannot read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["gradient", "delta", "tensors"]


@dataclass(frozen=True)
class SealedTensor:
    """Name, shape and dtype of one tensor inside: what a server that builds the network knows anyway."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_buffer: bool = False


@dataclass(frozen=True)
class SealedUpdate:
    """An update nobody but the key holder can read. Attacks do not accept it.

    Attributes:
        scheme: how it was sealed.
        payload: the ciphertexts.
        num_examples: examples behind it, where the client says.
        kind: what is inside.
        contents: what the ciphertexts hold, in order.
        key: fingerprint of the public key.
        client: who sent it; of a total, all who are in it.
        round: when it was sent.
        tag: authenticates all the rest; empty where it was not signed.
        pieces: of a total, the sum of the whole-number weights inside; 0 for one client's update.
        weight: of a total, the sum of the weights that were asked for.
        public: the public key itself, which is not sent along.
    """

    scheme: str
    payload: bytes = field(repr=False)
    num_examples: int | None = None
    kind: Kind = "tensors"
    contents: tuple[SealedTensor, ...] = field(default=(), repr=False)
    key: str = ""
    client: str = ""
    round: int = 0
    tag: bytes = field(default=b"", repr=False)
    pieces: int = 0
    weight: float = 1.0
    public: object = field(default=None, repr=False, compare=False)

    @property
    def is_total(self) -> bool:
        """Whether updates of several clients were added up in it."""
        return self.pieces > 0
