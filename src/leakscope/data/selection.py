"""Which examples of a set a caller asked for."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch import Tensor

from leakscope.errors import UsageError
from leakscope.rng import generator


def select(length: int, *, indices: Sequence[int] | Tensor | None, count: int | None, seed: int) -> list[int]:
    """Return positions out of `length`: those asked for, `count` drawn by `seed`, or all."""
    if indices is not None and count is not None:
        raise UsageError("give indices or count, not both")
    if count is not None:
        check_whole("count", count, largest=length)
        return torch.randperm(length, generator=generator(seed, "data", "count"))[:count].tolist()
    if indices is None:
        return list(range(length))
    chosen = _whole_numbers(indices)
    wrong = [i for i in chosen if not 0 <= i < length]
    if wrong or not chosen:
        raise UsageError(f"indices must lie in 0 … {length - 1}, got {wrong[:5] if wrong else 'none'}")
    return chosen


def check_whole(label: str, value: object, *, largest: int) -> None:
    """Refuse anything but a whole number from 1 to `largest`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
        raise UsageError(f"{label} must be a whole number from 1 to {largest}, got {value!r}")


def _whole_numbers(indices: Sequence[int] | Tensor) -> list[int]:
    values = indices.tolist() if isinstance(indices, Tensor) else indices
    try:
        # A mask of booleans would silently pick examples 0 and 1 over and over.
        if any(isinstance(value, bool) for value in values):
            raise TypeError
        return [operator.index(value) for value in values]
    except TypeError:
        raise UsageError(f"indices must be a sequence of whole numbers, got {indices!r}") from None
