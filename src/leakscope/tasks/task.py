"""What every task says of itself, and what all of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from leakscope.errors import BadInputError

# Takes what a network returned and the targets.
TaskLoss = Callable[[Any, Tensor], Tensor]


@dataclass(frozen=True)
class OutputLoss:
    """A loss that takes what the network returned, unprocessed; any other loss takes its scores."""

    function: TaskLoss

    def __call__(self, output: Any, targets: Tensor) -> Tensor:
        """The mean loss."""
        return self.function(output, targets)


class Task(ABC):
    """One kind of problem; a frozen dataclass with its options as fields."""

    name: ClassVar[str]
    # The range of valid inputs where the data does not say it; None for data without one.
    bounds: ClassVar[tuple[float, float] | None] = (0.0, 1.0)

    @property
    @abstractmethod
    def is_cross_entropy(self) -> bool:
        """Whether the loss is the mean softmax cross-entropy over class labels, so that its marks can be relied on."""

    @abstractmethod
    def loss(self, output: Any, targets: Tensor, /) -> Tensor:
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

    def outputs(self, output: Any) -> int:
        """How many outputs (classes, symbols, numbers) the network has for an example."""
        return self.check_output(output).shape[-1]

    def check_input_shape(self, shape: tuple[int, ...]) -> None:  # noqa: B027 - any shape is the default
        """BadInputError unless one example of this task can have this shape; by default any can."""

    @property
    def why_no_labels(self) -> str | None:
        """Why no rule can read labels off an update of this task; None where its loss decides."""
        return None

    def draw_targets(self, count: int, outputs: int, rng: Generator) -> Tensor:
        """Made-up targets, to tell what a run would cost without looking at private ones; by default labels [n]."""
        return torch.randint(outputs, (count,), generator=rng)

    def doubts(self, outputs: int) -> tuple[str, ...]:
        """What follows from this task being declared incompletely, as notes; by default nothing."""
        return ()


def unwrap(output: Any) -> Any:
    """The scores inside what a network returned: its `.logits`, its entry "logits", or the output itself."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        return output.get("logits", output)
    # An output class of any library: what it is called cannot be known, what it holds can.
    return getattr(output, "logits", output)


def check_matrix(scores: Any, expected: str, remedy: str) -> Tensor:
    """Insist on one tensor with two axes."""
    if isinstance(scores, Tensor) and scores.ndim == 2:
        return scores
    raise BadInputError(
        f"the model must return one tensor of {expected}, got {describe(scores)}; "
        f"wrap it in a module whose forward returns {remedy}"
    )


def check_labels(labels: Tensor, classes: int) -> None:
    """Insist on labels that cross-entropy over `classes` can have seen, before a kernel fails on them."""
    if labels.is_floating_point():
        if labels.ndim != 2 or labels.shape[1] != classes:
            raise BadInputError(
                f"soft targets need shape [n, {classes}], got {list(labels.shape)}; give one probability per class"
            )
    elif labels.ndim != 1 or labels.dtype != torch.long:
        raise BadInputError(
            f"class labels must be int64 of shape [n], got {labels.dtype} of shape {list(labels.shape)}; "
            "convert them with .long().flatten()"
        )
    elif int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise BadInputError(
            f"targets must lie in 0…{classes - 1} for this model, got {int(labels.min())}…{int(labels.max())}; "
            "map the labels, or pass the model the update was computed on"
        )


def describe(scores: Any) -> str:
    """What came instead of scores, for an error."""
    return f"a tensor of shape {list(scores.shape)}" if isinstance(scores, Tensor) else f"a {type(scores).__name__}"
