"""Rows of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor
from torch.nn import functional

from leakscope.errors import BadInputError
from leakscope.tasks.classification import Classification
from leakscope.tasks.task import Task, check_labels, check_matrix, unwrap


@dataclass(frozen=True)
class Tabular(Task):
    """Rows of numbers, inputs [n, features] without a natural range; a class or numbers follow from them.

    Attributes:
        predicts: "class" (cross-entropy, scores [n, classes]) or "numbers" (mean squared error, scores [n, outputs]).
        tolerance: predicted numbers that are all this close count as right.
    """

    predicts: Literal["class", "numbers"] = "class"
    tolerance: float = 0.1
    name: ClassVar[str] = "tabular"
    bounds: ClassVar[tuple[float, float] | None] = None

    @property
    def is_cross_entropy(self) -> bool:
        """Where a class is predicted."""
        return self.predicts == "class"

    def loss(self, output: Any, targets: Tensor, /) -> Tensor:
        """Mean cross-entropy, or mean squared error."""
        scores = self.check_output(output)
        if self.predicts == "class":
            return functional.cross_entropy(scores, targets)
        return functional.mse_loss(scores, targets.reshape(scores.shape).to(scores.dtype))

    def check_output(self, output: Any) -> Tensor:
        """Scores [n, outputs]."""
        return check_matrix(unwrap(output), "scores [n, outputs]", "the scores alone")

    def check_targets(self, targets: Tensor, outputs: int) -> None:
        """Labels, or as many numbers as there are outputs."""
        if self.predicts == "class":
            check_labels(targets, outputs)
        elif not targets.is_floating_point() or targets.numel() != len(targets) * outputs:
            raise BadInputError(
                f"task Tabular needs {outputs} floating-point numbers an example, got {targets.dtype} of shape "
                f"{list(targets.shape)}; convert targets with .float(), or pass predicts='class'"
            )

    def check_input_shape(self, shape: tuple[int, ...]) -> None:
        """A row of numbers has one axis."""
        if len(shape) != 1:
            raise BadInputError(f"task Tabular needs inputs [n, features], got examples of shape {list(shape)}")

    def decode(self, output: Any) -> Tensor:
        """The likeliest class [n], or the numbers [n, outputs]."""
        scores = self.check_output(output)
        return scores.argmax(1) if self.predicts == "class" else scores

    def count_correct(self, output: Any, targets: Tensor) -> int:
        """How often the class is right, or every number within the tolerance."""
        if self.predicts == "class":
            return Classification().count_correct(output, targets)
        said = self.decode(output)
        return int(((said - targets.reshape(said.shape)).abs() <= self.tolerance).all(1).sum())
