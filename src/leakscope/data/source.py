"""What a reader of any format hands over, labels at once and pixels on demand, and which of it a caller wants."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leakscope.errors import UsageError
from leakscope.rng import generator
from leakscope.types import Bounds


@dataclass(frozen=True)
class Source:
    """Examples that can be read by position: `read` returns float32 inputs [n, …] inside `bounds`.

    Named sets and pictures give images [n, C, H, W] in [0, 1]; `bounds` is None for data without a range.
    """

    targets: Tensor
    read: Callable[[Sequence[int]], Tensor]
    bounds: Bounds | None = (0.0, 1.0)

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.targets)

    def subset(self, positions: Sequence[int]) -> Source:
        """Return only the examples at `positions`, renumbered from 0."""
        kept = list(positions)
        return Source(self.targets[kept], lambda chosen: self.read([kept[i] for i in chosen]), self.bounds)


def from_arrays(images: np.ndarray, targets: np.ndarray) -> Source:
    """Wrap images [n, H, W], [n, H, W, C] (8 bit, or floats in [0, 1]) and labels [n]."""
    if images.ndim == 3:
        images = images[..., None]

    def read(chosen: Sequence[int]) -> Tensor:
        picked = torch.from_numpy(np.ascontiguousarray(images[list(chosen)].transpose(0, 3, 1, 2)))
        return picked.float() / 255 if images.dtype == np.uint8 else picked.float()

    return Source(torch.from_numpy(targets.astype(np.int64)), read)


def every_fifth(source: Source, split: str) -> Source:
    """Split a set that has no official split: every fifth example is for testing.

    Sets sorted by class keep their class balance this way, and no seed is involved.
    """
    return source.subset([i for i in range(len(source)) if (i % 5 == 0) == (split == "test")])


def join(first: Source, second: Source) -> Source:
    """Return both sources one after the other."""
    border = len(first)

    def read(chosen: Sequence[int]) -> Tensor:
        early = [place for place, i in enumerate(chosen) if i < border]
        late = [place for place, i in enumerate(chosen) if i >= border]
        parts = [
            source.read([chosen[place] - offset for place in places])
            for source, places, offset in ((first, early, 0), (second, late, border))
            if places
        ]
        if len({part.shape[1:] for part in parts}) > 1:
            raise UsageError("the images of train and test differ in size; pass size=… to bring them to one size")
        return torch.cat(parts)[torch.tensor(early + late).argsort()]

    return Source(torch.cat([first.targets, second.targets]), read, first.bounds)


def select(length: int, *, indices: Sequence[int] | Tensor | None, count: int | None, seed: int) -> list[int]:
    """Return positions out of `length`: those asked for, `count` drawn by `seed`, or all."""
    if indices is not None and count is not None:
        raise UsageError("give indices or count, not both")
    if count is not None:
        _check_whole("count", count, largest=length)
        return torch.randperm(length, generator=generator(seed, "data", "count"))[:count].tolist()
    if indices is None:
        return list(range(length))
    chosen = _whole_numbers(indices)
    wrong = [i for i in chosen if not 0 <= i < length]
    if wrong or not chosen:
        raise UsageError(f"indices must lie in 0 … {length - 1}, got {wrong[:5] if wrong else 'none'}")
    return chosen


def _check_whole(label: str, value: object, *, largest: int) -> None:
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
