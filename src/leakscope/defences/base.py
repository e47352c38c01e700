"""A defence that changes only what is shared, as a function of the update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Generator, Tensor, nn

from leakscope.errors import UsageError
from leakscope.types import Batch, ClientStep, SealedUpdate, SharedUpdate, Tensors

Rewrite = Callable[[Tensors, Generator], dict[str, Tensor]]


@dataclass(frozen=True)
class _RewrittenStep:
    step: ClientStep
    rewrite: Rewrite

    def __call__(self, model: nn.Module, batch: Batch, rng: Generator) -> SharedUpdate | SealedUpdate:
        update = self.step(model, batch, rng)
        if isinstance(update, SealedUpdate):
            return update
        return replace(update, tensors=self.rewrite(update.tensors, rng))


def rewritten(step: ClientStep, rewrite: Rewrite) -> ClientStep:
    """`step`, with its update's tensors passed through `rewrite`."""
    return _RewrittenStep(step, rewrite)


def not_negative(defence: str, option: str, value: float) -> None:
    """Refuse a negative or non-finite scale."""
    if not 0.0 <= value < float("inf"):
        raise UsageError(f"{defence} needs a finite {option} ≥ 0, got {value}")
