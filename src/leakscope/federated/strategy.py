"""How much each client counts in a round: what every strategy says of itself, and federated averaging."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from leakscope.errors import UsageError

if TYPE_CHECKING:
    from leakscope.federated.client import Reply


class Strategy(ABC):
    """Weighs the clients of a round; a frozen dataclass with its options as fields."""

    # Whether clients try each other's models on their held-out examples before they are weighed.
    needs_validation: bool = False
    # Share of a client's own update in the model that others validate; the rest is spread over the others. None: all.
    mixing: float | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """What tables and reports call it."""

    @abstractmethod
    def weigh(self, replies: Sequence[Reply], validation: Tensor | None) -> list[float]:
        """One weight ≥ 0 per reply, in its order; their sum is 1.

        `validation[i, j]` is the loss of the model of reply i on the held-out examples of validator j; None where this
        strategy asks for none.
        """


@dataclass(frozen=True)
class FedAvg(Strategy):
    """Federated averaging: every client counts by its number of examples.

    References:
        McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017.
    """

    @property
    def name(self) -> str:
        """The paper's name."""
        return "fedavg"

    def weigh(self, replies: Sequence[Reply], validation: Tensor | None) -> list[float]:
        """nᵢ / Σ n."""
        total = sum(reply.num_examples for reply in replies)
        return [reply.num_examples / total for reply in replies]


def check_weights_of(strategy: Strategy, weights: Sequence[float], replies: Sequence[Reply]) -> None:
    """Insist on one finite weight ≥ 0 per reply and on a sum of 1."""
    sound = all(math.isfinite(weight) and weight >= 0 for weight in weights)
    if len(weights) != len(replies) or not sound or abs(math.fsum(weights) - 1) > 1e-6:
        raise UsageError(
            f"strategy {strategy.name} must return one finite weight ≥ 0 for each of {len(replies)} replies, with the "
            f"sum 1, got {list(weights)}; correct its weigh()"
        )
