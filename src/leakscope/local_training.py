"""How a client trains on its own examples before it shares what changed."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from leakscope.counts import MOST_EXAMPLES, MOST_POSITIONS, MOST_STEPS, check_count, show_count
from leakscope.errors import UsageError, suggest

if TYPE_CHECKING:
    from torch import Generator

Optimiser = Literal["sgd", "adam", "adamw"]
Schedule = Literal["constant", "step", "cosine", "linear"]
Order = tuple[tuple[int, ...], ...]

_OPTIMISERS = ("sgd", "adam", "adamw")
_SCHEDULES = ("constant", "step", "cosine", "linear")


@dataclass(frozen=True)
class LocalTraining:
    """What a client does between the model it receives and the change it shares.

    `LocalTraining(lr, steps, batch_size)` is plain SGD: steps over the examples in order, wrapping
    round. Optimisers and schedules are those of `torch.optim`, with the same meaning of every option.

    Attributes:
        lr: learning rate of the first step.
        steps: local steps, at most 100,000; 1 where neither steps nor epochs are given, None where epochs are.
        batch_size: examples of one step; all of them where there are fewer.
        epochs: passes over the examples instead of steps; the last batch of a pass may be smaller. All passes
            together are at most 100,000 steps.
        optimiser: "sgd", "adam" or "adamw".
        momentum: of SGD; so are `nesterov` and `dampening`.
        nesterov: look ahead along the momentum.
        dampening: share of a new gradient that momentum leaves out.
        weight_decay: added to the gradient as weight_decay · W; AdamW takes it off the weights directly.
        betas: decay of Adam's two moments.
        eps: added to Adam's denominator.
        shuffle: deal the examples in another order in every pass.
        drop_last: leave out the last batch of a pass where it is not full.
        schedule: how the rate changes from one local step to the next.
        decay_every: "step" multiplies the rate by `decay_factor` after so many steps.
        decay_factor: see `decay_every`.
        final_fraction: "cosine" and "linear" go from the whole rate down to this share of it.
    """

    lr: float
    steps: int | None = None
    batch_size: int = 1
    epochs: int | None = None
    optimiser: Optimiser = "sgd"
    momentum: float = 0.0
    nesterov: bool = False
    dampening: float = 0.0
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    shuffle: bool = False
    drop_last: bool = False
    schedule: Schedule = "constant"
    decay_every: int | None = None
    decay_factor: float = 0.1
    final_fraction: float = 0.0

    def __post_init__(self) -> None:
        if self.steps is None and self.epochs is None:
            object.__setattr__(self, "steps", 1)
        # A file knows lists only; equal trainings must be equal values.
        object.__setattr__(self, "betas", tuple(self.betas))
        _check_amount(self)
        _check_optimiser(self)
        _check_schedule(self)

    def count_steps(self, examples: int) -> int:
        """Local steps over so many examples."""
        if self.steps is not None:
            return self.steps
        count = (self.epochs or 1) * self._count_batches(examples)
        if count > MOST_STEPS:
            raise UsageError(
                f"{self.epochs} epochs over {show_count(examples)} examples in batches of {self.batch_size:,} are "
                f"{show_count(count)} local steps, at most {MOST_STEPS:,} are possible; correct the epochs or the "
                "number of examples"
            )
        return count

    def is_one_step(self, examples: int | None) -> bool:
        """Whether it is known to be a single step; epochs say so only of a known number of examples."""
        if self.steps is None and examples is None:
            return False
        return self.count_steps(examples or 1) == 1

    def order(self, examples: int, rng: Generator | None = None) -> Order:
        """Positions of the examples of every step, out of so many.

        Without `rng` a shuffled order is unknown, and the order of the data stands for it.
        """
        count, size = self.count_steps(examples), min(self.batch_size, examples)
        is_plain = self.steps is not None and not self.shuffle
        # Whole passes are dealt, also for a few steps.
        if (needed := max(count * size, 0 if is_plain else examples)) > MOST_POSITIONS:
            raise UsageError(
                f"{count:,} local steps of {size:,} out of {show_count(examples)} examples need {show_count(needed)} "
                f"positions, at most {MOST_POSITIONS:,} are possible; correct the steps, the batch size or the "
                "number of examples"
            )
        if is_plain:
            starts = range(0, count * self.batch_size, self.batch_size)
            return tuple(tuple((start + i) % examples for i in range(size)) for start in starts)
        found: list[tuple[int, ...]] = []
        while len(found) < count:
            dealt = range(examples) if rng is None or not self.shuffle else _shuffle(examples, rng)
            found += self._deal(dealt)
        return tuple(found[:count])

    def rate_factors(self, count: int) -> tuple[float, ...]:
        """Share of `lr` that each of `count` steps uses."""
        if self.schedule == "step":
            every = self.decay_every or 1
            return tuple(self.decay_factor ** (step // every) for step in range(count))
        low = self.final_fraction
        if self.schedule == "cosine":
            return tuple(low + (1 - low) * (1 + math.cos(math.pi * step / count)) / 2 for step in range(count))
        if self.schedule == "linear":
            return tuple(1 + (low - 1) * step / count for step in range(count))
        return (1.0,) * count

    def total_rate(self, count: int) -> float:
        """R such that `count` steps of SGD with one and the same gradient g change the weights by −R·g.

        Schedule, momentum and dampening are part of it; for plain SGD it is rate × steps. Weight
        decay stays out: the change then stands for the mean gradient plus weight_decay · W. Adam moves
        every weight by about the rate, however long the gradient is: its R is the sum of the rates.
        """
        total, velocity = 0.0, 0.0
        for step, factor in enumerate(self.rate_factors(count)):
            velocity = self.momentum * velocity + (1 - self.dampening) if step and self.momentum else 1.0
            total += factor * (1 + self.momentum * velocity if self.nesterov else velocity)
        return self.lr * total

    @property
    def adds_gradients(self) -> bool:
        """Whether the change is a weighted sum of gradients, so that its length tells theirs: SGD."""
        return self.optimiser == "sgd"

    def settings(self) -> dict[str, Any]:
        """Rate, amount and batch size, and whatever else is not at its default: what a file keeps."""
        usual = asdict(LocalTraining(self.lr))
        always = ("lr", "steps", "batch_size")
        mine = {name: value for name, value in asdict(self).items() if value is not None}
        return {name: value for name, value in mine.items() if name in always or value != usual[name]}

    def _count_batches(self, examples: int) -> int:
        """Batches of one pass."""
        full, rest = divmod(examples, self.batch_size)
        count = full + (rest > 0 and not self.drop_last)
        if not count:
            raise UsageError(
                f"drop_last leaves no batch of {self.batch_size} out of {examples} examples; "
                "use a smaller batch_size, or drop_last=False"
            )
        return count

    def _deal(self, positions: range | list[int]) -> list[tuple[int, ...]]:
        """The batches of one pass."""
        size = self.batch_size
        return [
            tuple(positions[start : start + size])
            for start in range(0, self._count_batches(len(positions)) * size, size)
        ]


def _check_amount(local: LocalTraining) -> None:
    if local.steps is not None and local.epochs is not None:
        raise UsageError(
            f"LocalTraining takes steps or epochs, got steps={local.steps} and epochs={local.epochs}; leave one out"
        )
    amount = local.epochs if local.steps is None else local.steps
    if not 0 < local.lr < math.inf or amount is None or amount < 1 or local.batch_size < 1:
        counted = f"steps={local.steps}" if local.epochs is None else f"epochs={local.epochs}"
        raise UsageError(
            f"LocalTraining needs lr > 0, {'steps' if local.epochs is None else 'epochs'} ≥ 1 and batch_size ≥ 1, "
            f"got lr={local.lr}, {counted}, batch_size={local.batch_size}"
        )
    for name, value, most in (
        ("steps", local.steps, MOST_STEPS),
        ("epochs", local.epochs, MOST_STEPS),
        ("batch_size", local.batch_size, MOST_EXAMPLES),
    ):
        if value is not None:
            check_count(value, f"LocalTraining.{name}", most=most)
    if local.drop_last and local.epochs is None and not local.shuffle:
        raise UsageError("drop_last has no effect on steps in order, which wrap round; give epochs, or drop it")


def _check_optimiser(local: LocalTraining) -> None:
    if local.optimiser not in _OPTIMISERS:
        raise UsageError(f"unknown optimiser {local.optimiser!r}.{suggest(str(local.optimiser), _OPTIMISERS)}")
    if local.optimiser == "sgd":
        _refuse_idle(local, optimiser="sgd", options=("betas", "eps"))
        if (local.nesterov or local.dampening) and not local.momentum:
            raise UsageError("nesterov and dampening have no effect without momentum; give momentum=, or drop them")
        if local.nesterov and local.dampening:
            raise UsageError(f"nesterov needs dampening 0, got {local.dampening}; drop one of the two")
    else:
        _refuse_idle(local, optimiser=local.optimiser, options=("momentum", "nesterov", "dampening"))
    for name, values in {"momentum": (local.momentum,), "dampening": (local.dampening,), "betas": local.betas}.items():
        if not all(0 <= value < 1 for value in values):
            raise UsageError(f"LocalTraining needs 0 ≤ {name} < 1, got {', '.join(map(str, values))}")
    if len(local.betas) != 2 or not 0 <= local.weight_decay < math.inf or not 0 < local.eps < math.inf:
        raise UsageError(
            "LocalTraining needs two betas, a finite weight_decay ≥ 0 and eps > 0, got "
            f"betas={local.betas}, weight_decay={local.weight_decay}, eps={local.eps}"
        )


def _check_schedule(local: LocalTraining) -> None:
    if local.schedule not in _SCHEDULES:
        raise UsageError(f"unknown schedule {local.schedule!r}.{suggest(str(local.schedule), _SCHEDULES)}")
    if (local.schedule == "step") != (local.decay_every is not None):
        raise UsageError(
            f"decay_every belongs to schedule='step', got schedule={local.schedule!r} and "
            f"decay_every={local.decay_every}; give both or neither"
        )
    idle = ("final_fraction",) if local.schedule == "step" else ("decay_factor",)
    idle = ("decay_factor", "final_fraction") if local.schedule == "constant" else idle
    _refuse_idle(local, schedule=local.schedule, options=idle)
    every = 1 if local.decay_every is None else local.decay_every
    if every < 1 or not 0 < local.decay_factor <= 1 or not 0 <= local.final_fraction <= 1:
        raise UsageError(
            "LocalTraining needs decay_every ≥ 1, 0 < decay_factor ≤ 1 and 0 ≤ final_fraction ≤ 1, got "
            f"{local.decay_every}, {local.decay_factor} and {local.final_fraction}"
        )


def _refuse_idle(local: LocalTraining, *, options: tuple[str, ...], **chosen: str) -> None:
    """An option that does nothing is a misunderstanding: better said than ignored."""
    usual = {field.name: field.default for field in fields(LocalTraining)}
    ((kind, name),) = chosen.items()
    for option, value in asdict(local).items():
        if option in options and value != usual[option]:
            raise UsageError(f"{option} has no effect with {kind}={name!r}, got {option}={value}; leave it out")


def _shuffle(examples: int, rng: Generator) -> list[int]:
    # Imported here: settings are read and checked without torch.
    import torch

    return torch.randperm(examples, generator=rng).tolist()
