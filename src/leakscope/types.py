"""The values that flow through an audit, and the protocols that carry them.

    Batch ─ClientStep─▶ SharedUpdate ─Scenario─▶ Observation ─Attack─▶ Reconstruction ─score─▶ Scores

One direction: an attack receives an `Observation` and never the private `Batch`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from leakscope.counts import MOST_EXAMPLES, check_count
from leakscope.errors import BadInputError, UsageError
from leakscope.local_training import LocalTraining as LocalTraining  # callers know it from here
from leakscope.local_training import Order
from leakscope.results import AuditResult as AuditResult  # callers know these four from here
from leakscope.results import Fit as Fit
from leakscope.results import Scores as Scores
from leakscope.results import Status as Status
from leakscope.tasks import Classification, Columns, Task

Tensors = Mapping[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
# The range of all inputs, or of every column of a table.
Bounds = tuple[float, float] | Columns


class Knowledge(enum.Enum):
    """One thing a server may or may not know besides model, update and input shape."""

    BATCH_SIZE = "how many examples are behind the update"
    LABELS = "the labels of the examples"
    LABEL_ORDER = "which label was used in which local step"
    LEARNING_RATE = "the client's learning rate"
    LOCAL_STEPS = "how many local steps of which batch size the client made"
    BATCH_STATISTICS = "the exact batch statistics seen by the normalisation layers"


@dataclass(frozen=True)
class Batch:
    """Private examples: `inputs` [n, …] inside `bounds`, `targets` [n].

    Images are in [0, 1]; the model normalises. `bounds=None` lifts the range check for data
    that has no natural range. A table may have a range for each column: a pair of sequences or tensors, or
    `tasks.Columns`, which also says what is one-hot. Tokens, which are whole numbers, have no bounds.
    """

    inputs: Tensor
    targets: Tensor
    bounds: Bounds | None = (0.0, 1.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", _as_bounds(self.bounds))
        if self.inputs.ndim < 2 or len(self.inputs) == 0:
            raise BadInputError(f"Batch.inputs needs shape [n, …] with n ≥ 1, got {list(self.inputs.shape)}")
        if self.targets.ndim == 0 or len(self.targets) != len(self.inputs):
            raise BadInputError(
                f"Batch needs one target per input, got {len(self.inputs)} inputs and targets of shape "
                f"{list(self.targets.shape)}; give targets [n]"
            )
        if self.inputs.is_floating_point():
            _check_range(self.inputs, self.bounds)

    def __len__(self) -> int:
        return len(self.inputs)

    def to(self, *args: object, **kwargs: object) -> Batch:
        """Move or cast the inputs; targets follow the device only."""
        inputs = self.inputs.to(*args, **kwargs)  # type: ignore[arg-type]
        return Batch(inputs, self.targets.to(inputs.device), self.bounds)


def _as_bounds(given: object) -> Bounds | None:
    """Bounds as a pair of numbers or as columns."""
    if given is None or isinstance(given, Columns):
        return given
    try:
        low, high = given  # type: ignore[misc]
        numbers = [torch.as_tensor(side, dtype=torch.float64) for side in (low, high)]
    except (TypeError, ValueError) as error:
        raise UsageError(f"bounds are None, (low, high), one of each per column, or Columns; got {given!r}") from error
    if numbers[0].ndim == numbers[1].ndim == 0:
        return (float(numbers[0]), float(numbers[1]))
    width = max(one.numel() for one in numbers)
    return Columns(*(tuple(one.reshape(-1).expand(width).tolist()) for one in numbers))


def limits_of(bounds: Bounds | None, like: Tensor) -> tuple[float, float] | tuple[Tensor, Tensor]:
    """Low and high as they broadcast against inputs [..., columns] like these; 0 and 1 where there are no bounds."""
    if isinstance(bounds, Columns):
        return bounds.limits(like)
    return bounds or (0.0, 1.0)


def _check_range(inputs: Tensor, bounds: Bounds | None) -> None:
    if not bool(torch.isfinite(inputs).all()):
        raise BadInputError("Batch.inputs holds NaN or Inf; clean the data before auditing it")
    if bounds is None:
        return
    if isinstance(bounds, Columns):
        bounds.check(inputs)
        return
    low, high = float(inputs.min()), float(inputs.max())
    # A rounding error of a resize is not a different scale.
    if low < bounds[0] - 1e-4 or high > bounds[1] + 1e-4:
        raise BadInputError(
            f"Batch.inputs must lie in [{bounds[0]:g}, {bounds[1]:g}], got [{low:.4g}, {high:.4g}]; "
            "divide 8-bit images by 255 and let the model normalise, or pass bounds=None"
        )


@dataclass(frozen=True)
class SharedUpdate:
    """What one client sends: a mean gradient, or a weight delta (after − before).

    `tensors` may cover only some parameters: layers that were not shared are absent.
    """

    kind: Literal["gradient", "delta"]
    tensors: Tensors
    num_examples: int | None = None
    local: LocalTraining | None = None
    buffers: Tensors = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in ("gradient", "delta"):
            raise UsageError(f"SharedUpdate.kind must be 'gradient' or 'delta', got {self.kind!r}")
        if not self.tensors:
            raise BadInputError("SharedUpdate.tensors is empty; expected one tensor per shared parameter")
        for name, value in self.tensors.items():
            if not isinstance(value, Tensor):
                raise BadInputError(
                    f"SharedUpdate.tensors[{name!r}] must be a tensor, got {type(value).__name__}; "
                    "leave out parameters that were not shared, and call backward before reading .grad"
                )
        if self.num_examples is not None:
            check_count(self.num_examples, "SharedUpdate.num_examples", most=MOST_EXAMPLES)


@dataclass(frozen=True)
class SealedUpdate:
    """An update nobody but the key holder can read. Attacks do not accept it."""

    scheme: str
    payload: bytes = field(repr=False)
    num_examples: int | None = None


@dataclass(frozen=True)
class Observation:
    """All that a server in `scenario` sees. A field is None when it was not granted.

    Attributes:
        loss: what the client trained with; takes the scores of the network and the targets.
        contradictions: those of the notes by which the update is not what it was declared to be.
        task: what the network is for: how its output is checked and decoded.
        order: positions of the examples of every local step, where that order was granted and is not the plain one.
        earlier: what the same client sent in earlier rounds, oldest first, each with its own global model.
        secret: what a malicious server kept when it crafted the model.
        vocabulary: how many tokens there are, where inputs are whole numbers that go to an embedding; else None.
        given: what an attacker assumes of tensors that the network declares unknown, by the name of the buffer.
    """

    model: nn.Module
    update: SharedUpdate
    loss: Loss
    input_shape: tuple[int, ...]
    num_classes: int
    scenario: str
    knowledge: frozenset[Knowledge]
    bounds: Bounds | None = (0.0, 1.0)
    num_examples: int | None = None
    targets: Tensor | None = None
    local: LocalTraining | None = None
    batch_statistics: Tensors | None = None
    notes: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()
    task: Task = field(default_factory=Classification)
    order: Order | None = None
    earlier: tuple[Observation, ...] = ()
    secret: object = None
    vocabulary: int | None = None
    given: Tensors = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """Device of the shared tensors."""
        return next(iter(self.update.tensors.values())).device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the shared tensors."""
        return next(iter(self.update.tensors.values())).dtype


@dataclass(frozen=True)
class JointExamples:
    """All different examples behind several updates of one client.

    `members` holds, for every update, the places of its examples in `inputs` and `targets`, oldest first.
    """

    inputs: Tensor
    targets: Tensor
    members: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Reconstruction:
    """What an attack returned. `loss` is the matching distance *at* `inputs` and `targets`.

    `history` is that distance along the run; `target_probabilities` holds soft labels where
    an attack optimised them, and is then what the loss was computed with. Where updates of several
    rounds were matched together, `joint` holds all their examples: `loss` is the distance of all updates there.
    `fit` says how much of the update the result explains; None where that cannot be computed. Where inputs are tokens,
    `tokens` holds the set of those that were found, sorted, out of `vocabulary`; `inputs` only lists them, −1 behind.
    `inputs` are what the model saw; where an attacker knows what the client did to its pictures first, `originals`
    are the pictures before that.
    `unknowns` holds what was found of tensors that the network declares unknown; the loss was computed with them.
    `members` says, where an attack can tell, how many private examples each input is the mixture of; 1 is one example.
    """

    inputs: Tensor
    targets: Tensor | None
    loss: float
    status: Status
    history: tuple[float, ...] = ()
    target_probabilities: Tensor | None = None
    evaluations: int = 0
    notes: tuple[str, ...] = ()
    joint: JointExamples | None = None
    fit: Fit | None = None
    tokens: Tensor | None = None
    vocabulary: int | None = None
    originals: Tensor | None = None
    unknowns: Tensors = field(default_factory=dict)
    members: tuple[int, ...] | None = None
