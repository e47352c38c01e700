"""Classes, by softmax or by one logit."""

from __future__ import annotations

from dataclasses import dataclass
from types import FunctionType
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional

from leakscope.errors import BadInputError
from leakscope.tasks.task import Task, TaskLoss, check_labels, check_matrix, unwrap

# Losses of torch's own are known for what they are; any other callable could be anything.
_TORCH_LOSSES = ("torch.nn.functional", "torch.nn.modules.loss")

UNKNOWN_LOSS = (
    "the loss ({name}) is not known to be cross-entropy: labels are not checked, the marks that cross-entropy leaves "
    "on an update are not looked for, and labels are read off only where trying the loss shows that its gradient tells "
    "them; say task=Classification(loss=…, cross_entropy=True) if it is the mean cross-entropy of class labels, and "
    "cross_entropy=False if it is not"
)


def is_mean_cross_entropy(loss: TaskLoss) -> bool:
    """Whether `loss` is known to be the mean of softmax cross-entropy, without weights or smoothing."""
    if isinstance(loss, OfScores):
        loss = loss.function
    if isinstance(loss, nn.CrossEntropyLoss):
        return loss.reduction == "mean" and loss.label_smoothing == 0.0 and loss.weight is None
    return loss is functional.cross_entropy


@dataclass(frozen=True)
class OfScores:
    """A loss of scores, made one of whatever a network returns: `logits` are unwrapped first."""

    function: TaskLoss

    def __call__(self, output: Any, targets: Tensor, /) -> Tensor:
        """Unwrap, then compute."""
        return self.function(unwrap(output), targets)

    def __repr__(self) -> str:
        # Without the address of a function, which no other process repeats.
        named = isinstance(self.function, FunctionType)
        return f"OfScores({self.function.__qualname__ if named else repr(self.function)})"


@dataclass(frozen=True)
class Classification(Task):
    """One of several classes for every example; scores [n, classes].

    Attributes:
        loss: any callable of (logits, targets); given as it is, kept so that it also unwraps outputs.
        cross_entropy: whether `loss` is the mean softmax cross-entropy of class labels; None finds out, which works for
            torch's own losses. A loss wrapped in a lambda or a function needs True to be taken for what it is.

    Example:
        >>> Classification().is_cross_entropy, Classification(loss=nn.MSELoss()).is_cross_entropy
        (True, False)
        >>> wrapped = lambda logits, labels: functional.cross_entropy(logits, labels)
        >>> Classification(loss=wrapped, cross_entropy=True).is_cross_entropy
        True
    """

    loss: TaskLoss = functional.cross_entropy  # type: ignore[assignment]
    cross_entropy: bool | None = None
    name: ClassVar[str] = "classification"

    def __post_init__(self) -> None:
        if not isinstance(self.loss, OfScores):
            object.__setattr__(self, "loss", OfScores(self.loss))

    @property
    def is_cross_entropy(self) -> bool:
        """As declared; else by the loss itself: plain, a mean, without weights or smoothing."""
        return is_mean_cross_entropy(self.loss) if self.cross_entropy is None else self.cross_entropy

    @property
    def function(self) -> TaskLoss:
        """The loss as it was given."""
        return self.loss.function if isinstance(self.loss, OfScores) else self.loss

    def check_output(self, output: Any) -> Tensor:
        """Logits [n, classes]."""
        return check_matrix(unwrap(output), "logits [n, classes]", "the logits alone")

    def check_targets(self, targets: Tensor, outputs: int) -> None:
        """Labels of these classes, or one probability per class; any targets where the loss is something else."""
        if self.is_cross_entropy or isinstance(self.function, nn.CrossEntropyLoss):
            check_labels(targets, outputs)

    def decode(self, output: Any) -> Tensor:
        """The likeliest class, [n]; for one logit, whether it is positive."""
        scores = self.check_output(output)
        return scores.argmax(1) if scores.shape[1] > 1 else (scores[:, 0] > 0).long()

    def count_correct(self, output: Any, targets: Tensor) -> int:
        """How often the likeliest class is that of the target, or the likeliest one of soft targets."""
        soft = targets.ndim == 2 and targets.shape[1] > 1
        labels = targets.argmax(1) if soft else targets.reshape(-1)
        return int((self.decode(output) == labels).sum())

    def doubts(self, outputs: int) -> tuple[str, ...]:
        """A loss that nobody vouches for switches checks off, which must not happen without a word."""
        # Functions carry the module they were written in, as classes do.
        known = _origin(self.function).__module__ in _TORCH_LOSSES
        if self.cross_entropy is not None or outputs == 1 or known:
            return ()
        return (UNKNOWN_LOSS.format(name=_origin(self.function).__name__),)


def _origin(loss: TaskLoss) -> Any:
    """What names a loss: the function itself, or the class of an object."""
    return loss if isinstance(loss, FunctionType) else type(loss)


@dataclass(frozen=True)
class Binary(Task):
    """Two classes told apart by one logit; scores [n, 1], labels 0 and 1, [n] or [n, 1], whole numbers or not."""

    name: ClassVar[str] = "binary"

    @property
    def is_cross_entropy(self) -> bool:
        """No: a logistic loss leaves no row per class."""
        return False

    def loss(self, output: Any, targets: Tensor, /) -> Tensor:
        """The mean logistic loss."""
        logits = self.check_output(output)
        return functional.binary_cross_entropy_with_logits(logits.reshape(-1), targets.reshape(-1).to(logits.dtype))

    def check_output(self, output: Any) -> Tensor:
        """One logit an example."""
        scores = check_matrix(unwrap(output), "one logit an example, [n, 1]", "that logit alone")
        if scores.shape[1] != 1:
            raise BadInputError(
                f"task Binary needs a network with one output, got {scores.shape[1]}; use task Classification"
            )
        return scores

    def check_targets(self, targets: Tensor, outputs: int) -> None:
        """Numbers from 0 to 1."""
        if targets.numel() != len(targets) or float(targets.min()) < 0 or float(targets.max()) > 1:
            raise BadInputError(
                f"task Binary needs one label from 0 to 1 an example, got {float(targets.min()):g}…"
                f"{float(targets.max()):g} of shape {list(targets.shape)}; map the labels to 0 and 1"
            )

    def decode(self, output: Any) -> Tensor:
        """1 where the logit is positive, [n]."""
        return (self.check_output(output)[:, 0] > 0).long()

    def count_correct(self, output: Any, targets: Tensor) -> int:
        """How often the sign of the logit is right."""
        return int((self.decode(output) == (targets.reshape(-1) > 0.5).long()).sum())
