"""Rounds over sealed updates: clients seal and sign, the sum is made of ciphertexts, only the sum is opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leakscope.errors import CiphertextError, UsageError
from leakscope.federated.aggregator import Aggregator
from leakscope.sealed import OpeningKeys, SealingKey, check_update, client_secret, combine, open_update, seal
from leakscope.types import SealedUpdate, SharedUpdate

if TYPE_CHECKING:
    from leakscope.federated.client import Reply


@dataclass(frozen=True)
class SealedAggregator(Aggregator):
    """Both ends of a wire on which nobody without the keys can read.

    A client needs the public key and its own secret; a server the public key and all secrets; whoever opens the sum the
    keys. In one process they are together, and still only the sum is opened, but where a strategy has clients validate
    each other's models.

    Attributes:
        public: what updates are sealed with.
        secrets: what each client signs with, by its number.
        keys: what opens the sum; None for those who do not.
    """

    public: SealingKey
    secrets: Mapping[int, bytes] = field(repr=False)
    keys: OpeningKeys | None = field(default=None, repr=False)

    @classmethod
    def of(cls, keys: OpeningKeys, clients: Iterable[int]) -> SealedAggregator:
        """All of it in one process, with a new secret for every client."""
        return cls(keys.public, {client: client_secret() for client in clients}, keys)

    @property
    def name(self) -> str:  # type: ignore[override]
        """Scheme and precision: what a training depends on."""
        return f"sealed by {self.public.scheme}, exact to {self.public.precision:.1e}"

    def send(self, update: SharedUpdate, *, client: int, round: int) -> SealedUpdate:
        """The update sealed, and signed for this client and round."""
        if client not in self.secrets:
            raise UsageError(
                f"client {client} has no secret to sign with; make the aggregator with all clients' numbers"
            )
        return seal(update, self.public, client=str(client), round=round, secret=self.secrets[client])

    def check(self, reply: Reply, *, client: int, round: int) -> None:
        """Insist on a sealed update of this client and this round that can be added up."""
        update = self._sealed(reply)
        if update.client != str(client):
            raise CiphertextError(
                f"client {client} sent an update that is signed for {update.client[:80]!r}",
                client=str(client),
                reason="not authentic",
            )
        check_update(update, self.public, secrets=self._signers, round=round)

    def combine(self, replies: Sequence[Reply], weights: Sequence[float]) -> SharedUpdate:
        """The weighted sum, made of ciphertexts and opened."""
        if self.keys is None:
            raise UsageError(
                "this aggregator has no keys to open the sum with; give it keys, or use combine and open_sealed"
            )
        sealed = [self._sealed(reply) for reply in replies]
        total = combine(sealed, weights, secrets=self._signers, round=replies[0].round if replies else 0)
        tensors, buffers = open_update(total, self.keys)
        kind = "delta" if total.kind == "delta" else "gradient"
        return SharedUpdate(kind, tensors, total.num_examples, buffers=buffers)

    @property
    def _signers(self) -> dict[str, bytes]:
        return {str(client): secret for client, secret in self.secrets.items()}

    def _sealed(self, reply: Reply) -> SealedUpdate:
        if not isinstance(reply.update, SealedUpdate):
            raise CiphertextError(
                f"client {reply.client} sent its update in the clear, expected it sealed by {self.public.scheme}",
                client=str(reply.client),
                reason="malformed",
            )
        return reply.update
