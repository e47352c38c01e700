"""What is simulated of a client's local training."""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.local_training import Order
from leakscope.types import LocalTraining


@dataclass(frozen=True)
class Simulation:
    """The local steps behind an update, as far as they are known.

    Attributes:
        local: how the client trains.
        order: positions of the examples of every step.
        factor: from the change of the weights to the mean gradient it stands for, which is what is compared.
    """

    local: LocalTraining
    order: Order
    factor: float

    @property
    def rates(self) -> tuple[float, ...]:
        """The rate of every step."""
        return tuple(self.local.lr * factor for factor in self.local.rate_factors(len(self.order)))


def describe_optimiser(local: LocalTraining) -> str:
    """What a step does besides taking the rate times its gradient off the weights; empty for plain SGD."""
    if not local.adds_gradients:
        return local.optimiser
    return "momentum" if local.momentum else "weight decay" if local.weight_decay else ""
