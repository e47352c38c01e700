"""A defence that changes only what is shared, as a function of the update's tensors."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from torch import Generator, Tensor

from leakscope.defence import ClientHooks, Defence
from leakscope.errors import UsageError
from leakscope.types import SharedUpdate, Tensors


class UpdateDefence(Defence):
    """Rewrites the tensors of a finished update; what else belongs to the update stays."""

    def hooks(self) -> ClientHooks:
        """Act on the finished update alone."""
        return ClientHooks(update=self._update)

    @abstractmethod
    def rewrite(self, tensors: Tensors, rng: Generator) -> dict[str, Tensor]:
        """What is shared instead of `tensors`, by the same names."""

    def _update(self, update: SharedUpdate, rng: Generator) -> SharedUpdate:
        return replace(update, tensors=self.rewrite(update.tensors, rng))


def not_negative(defence: str, option: str, value: float) -> None:
    """Refuse a negative or non-finite scale."""
    if not 0.0 <= value < float("inf"):
        raise UsageError(f"{defence} needs a finite {option} ≥ 0, got {value}")
