"""How updates travel and become one: in the clear by default, sealed where an aggregator says how."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leakscope.errors import BadInputError
from leakscope.federated.aggregation import fedavg
from leakscope.types import SealedUpdate, SharedUpdate

if TYPE_CHECKING:
    from leakscope.federated.client import Reply


class Aggregator(ABC):
    """The two ends of the wire: what a client sends of its update, and what the updates of a round come to."""

    name: str

    def send(self, update: SharedUpdate, *, client: int, round: int) -> SharedUpdate | SealedUpdate:
        """What leaves the client; by default the update itself."""
        return update

    @abstractmethod
    def combine(self, replies: Sequence[Reply], weights: Sequence[float]) -> SharedUpdate:
        """Σ wᵢ uᵢ, where the weights sum to 1, opened."""


@dataclass(frozen=True)
class PlainAggregator(Aggregator):
    """Updates in the clear, averaged by `fedavg`."""

    name: str = "plain"

    def combine(self, replies: Sequence[Reply], weights: Sequence[float]) -> SharedUpdate:
        """The weighted mean of those that count at all."""
        updates, shares = [], []
        for reply, weight in zip(replies, weights, strict=True):
            if isinstance(reply.update, SealedUpdate):
                raise BadInputError(
                    f"client {reply.client} sent an update sealed by {reply.update.scheme!r}, which the plain "
                    "aggregator cannot open; give the experiment the aggregator of that scheme"
                )
            if weight > 0:
                updates.append(reply.update)
                shares.append(weight)
        return fedavg(updates, shares)
