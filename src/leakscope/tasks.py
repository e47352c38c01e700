"""What a network is for: its loss, what a valid output looks like, how it is decoded, what accuracy means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor


class Task(ABC):
    """One kind of problem; a frozen dataclass with its options as fields."""

    name: str

    @property
    @abstractmethod
    def is_cross_entropy(self) -> bool:
        """Whether the loss is the mean softmax cross-entropy over class labels, so that its marks can be relied on."""

    @abstractmethod
    def loss(self, output: Any, targets: Tensor) -> Tensor:
        """The mean loss of what a network returned, unprocessed."""

    @abstractmethod
    def check_output(self, output: Any) -> Tensor:
        """The scores a network returned, unwrapped; BadInputError where they are not of this task's form."""

    @abstractmethod
    def check_targets(self, targets: Tensor, outputs: int) -> None:
        """BadInputError unless `targets` can be learnt by a network with `outputs` outputs."""

    @abstractmethod
    def decode(self, output: Any) -> Tensor:
        """What the network says: a label, a text, a number for every example."""

    @abstractmethod
    def count_correct(self, output: Any, targets: Tensor) -> int:
        """How many examples were answered rightly."""
