"""The values that flow through an audit, and the protocols that carry them.

    Batch ─ClientStep─▶ SharedUpdate ─Scenario─▶ Observation ─Attack─▶ Reconstruction ─score─▶ Scores

One direction: an attack receives an `Observation` and never the private `Batch`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import torch
from torch import Generator, Tensor, nn

from leakscope.errors import BadInputError, UsageError, suggest
from leakscope.tasks import Classification, Task

if TYPE_CHECKING:
    from leakscope.attack import Attack

Tensors = Mapping[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
# Side of a square picture, or (height, width).
PictureSize = int | tuple[int, int]


def height_width(size: PictureSize, *, label: str = "size", largest: int | None = None) -> tuple[int, int]:
    """Height and width of a picture: one number is the side of a square.

    Example:
        >>> height_width(32), height_width((32, 100))
        ((32, 32), (32, 100))
    """
    pair = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    whole = all(isinstance(side, int) and not isinstance(side, bool) and side >= 1 for side in pair)
    if len(pair) != 2 or not whole or (largest is not None and max(pair) > largest):
        limit = "≥ 1" if largest is None else f"from 1 to {largest}"
        raise UsageError(f"{label} must be a whole number {limit}, or a pair (height, width) of them, got {size!r}")
    return pair[0], pair[1]


class Knowledge(enum.Enum):
    """One thing a server may or may not know besides model, update and input shape."""

    BATCH_SIZE = "how many examples are behind the update"
    LABELS = "the labels of the examples"
    LABEL_ORDER = "which label was used in which local step"
    LEARNING_RATE = "the client's learning rate"
    LOCAL_STEPS = "how many local steps of which batch size the client made"
    BATCH_STATISTICS = "the exact batch statistics seen by the normalisation layers"


class Status(str, enum.Enum):
    """How a cell ended. Only `OK` counts as evidence."""

    OK = "ok"
    DIVERGED = "diverged"
    NAN = "nan"
    OOM = "oom"
    TIMEOUT = "timeout"
    ERROR = "error"
    REFUSED = "refused"
    SEALED = "sealed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Batch:
    """Private examples: `inputs` [n, …] inside `bounds`, `targets` [n].

    Images are in [0, 1]; the model normalises. `bounds=None` lifts the range check for data
    that has no natural range.
    """

    inputs: Tensor
    targets: Tensor
    bounds: tuple[float, float] | None = (0.0, 1.0)

    def __post_init__(self) -> None:
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


def _check_range(inputs: Tensor, bounds: tuple[float, float] | None) -> None:
    if not bool(torch.isfinite(inputs).all()):
        raise BadInputError("Batch.inputs holds NaN or Inf; clean the data before auditing it")
    if bounds is None:
        return
    low, high = float(inputs.min()), float(inputs.max())
    # A rounding error of a resize is not a different scale.
    if low < bounds[0] - 1e-4 or high > bounds[1] + 1e-4:
        raise BadInputError(
            f"Batch.inputs must lie in [{bounds[0]:g}, {bounds[1]:g}], got [{low:.4g}, {high:.4g}]; "
            "divide 8-bit images by 255 and let the model normalise, or pass bounds=None"
        )


@dataclass(frozen=True)
class LocalTraining:
    """Plain local SGD: `steps` steps of `batch_size` examples in order, wrapping round."""

    lr: float
    steps: int = 1
    batch_size: int = 1

    def __post_init__(self) -> None:
        if not (self.lr > 0) or self.steps < 1 or self.batch_size < 1:
            raise UsageError(
                "LocalTraining needs lr > 0, steps ≥ 1 and batch_size ≥ 1, "
                f"got lr={self.lr}, steps={self.steps}, batch_size={self.batch_size}"
            )

    def indices(self, step: int, count: int) -> list[int]:
        """Positions of the examples used in `step`, out of `count`."""
        first = step * self.batch_size
        return [(first + i) % count for i in range(min(self.batch_size, count))]


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
        if self.num_examples is not None and self.num_examples < 1:
            raise UsageError(f"SharedUpdate.num_examples must be ≥ 1 or None, got {self.num_examples}")


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
    """

    model: nn.Module
    update: SharedUpdate
    loss: Loss
    input_shape: tuple[int, ...]
    num_classes: int
    scenario: str
    knowledge: frozenset[Knowledge]
    bounds: tuple[float, float] | None = (0.0, 1.0)
    num_examples: int | None = None
    targets: Tensor | None = None
    local: LocalTraining | None = None
    batch_statistics: Tensors | None = None
    notes: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()
    task: Task = field(default_factory=Classification)
    order: tuple[tuple[int, ...], ...] | None = None

    @property
    def device(self) -> torch.device:
        """Device of the shared tensors."""
        return next(iter(self.update.tensors.values())).device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the shared tensors."""
        return next(iter(self.update.tensors.values())).dtype


@dataclass(frozen=True)
class Reconstruction:
    """What an attack returned. `loss` is the matching distance *at* `inputs` and `targets`.

    `history` is that distance along the run; `target_probabilities` holds soft labels where
    an attack optimised them, and is then what the loss was computed with.
    """

    inputs: Tensor
    targets: Tensor | None
    loss: float
    status: Status
    history: tuple[float, ...] = ()
    target_probabilities: Tensor | None = None
    evaluations: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scores:
    """One value per private example and metric, after optimal assignment.

    `scores["psnr"]`, `scores.psnr` and `scores.metrics["psnr"]` are the same tensor [n]. `len(scores)` is the number of
    examples, not of metrics: those are `scores.names()`.

    Attributes:
        metrics: name → one value per example.
        label_correct: whether the label beside each reconstruction is that of the example, bool [n].
        assignment: the reconstruction paired with each example, −1 when there was none.
    """

    metrics: Tensors
    label_correct: Tensor
    assignment: Tensor

    def __len__(self) -> int:
        return len(self.assignment)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.metrics:
            raise UsageError(f"{name!r} was not measured.{suggest(name, self.metrics)}")
        return self.metrics[name]

    def names(self) -> tuple[str, ...]:
        """What was measured."""
        return tuple(self.metrics)

    @property
    def psnr(self) -> Tensor:
        """Peak signal-to-noise ratio in dB."""
        return self["psnr"]

    @property
    def ssim(self) -> Tensor:
        """Structural similarity."""
        return self["ssim"]

    @property
    def mse(self) -> Tensor:
        """Mean squared error."""
        return self["mse"]

    @property
    def lpips(self) -> Tensor | None:
        """Learned perceptual distance; None when it was not measured."""
        return self.metrics.get("lpips")

    @classmethod
    def join(cls, parts: Sequence[Scores]) -> Scores:
        """The scores of several victims one after the other, in the metrics that all of them have."""
        names = [name for name in parts[0].metrics if all(name in part.metrics for part in parts)]
        return cls(
            metrics={name: torch.cat([part.metrics[name] for part in parts]) for name in names},
            label_correct=torch.cat([part.label_correct for part in parts]),
            assignment=torch.cat([part.assignment for part in parts]),
        )


@dataclass(frozen=True)
class AuditResult:
    """One cell: an attack on one or more victims under one defence and scenario.

    `adaptive` marks the attacker who knows the defence. `baseline_psnr` is what a guesser
    without the update reaches on the same examples, so leakage can be read above chance.
    """

    attack: str
    defence: str
    scenario: str
    seed: int
    status: Status
    scores: Scores | None
    adaptive: bool = False
    loss: float = float("nan")
    baseline_psnr: Tensor | None = None
    history: tuple[float, ...] = ()
    evaluations: int = 0
    seconds: float = 0.0
    peak_mb: float = 0.0
    reconstruction: Tensor | None = None
    truth: Tensor | None = None
    notes: tuple[str, ...] = ()


class ClientStep(Protocol):
    """What a client computes on its own data before it shares anything."""

    def __call__(self, model: nn.Module, batch: Batch, rng: Generator) -> SharedUpdate | SealedUpdate:
        """Return what is shared; neither `model` nor `batch` is changed."""
        ...


@runtime_checkable
class Defence(Protocol):
    """Changes the network, the client's step, or both; and knows the attacker who knows it."""

    @property
    def name(self) -> str:
        """Name in kebab-case, as in the registry."""
        ...

    @property
    def paper(self) -> str:
        """Authors, title and year of what is implemented."""
        ...

    def harden(self, model: nn.Module) -> nn.Module:
        """Return the network the federation trains under this defence."""
        ...

    def wrap(self, step: ClientStep) -> ClientStep:
        """Return the client step under this defence."""
        ...

    def adapt(self, attack: Attack) -> Attack:
        """Return `attack` as run by someone who knows this defence is on."""
        ...
