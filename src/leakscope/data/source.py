"""What a reader of any format hands over: labels at once, pixels on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leakscope.errors import UsageError

# No reader allocates more than this for one file, whatever its header declares.
MAX_BYTES = 2 << 30


@dataclass(frozen=True)
class Source:
    """Examples that can be read by position: `read` returns float32 inputs [n, …] inside `bounds`.

    Named sets and pictures give images [n, C, H, W] in [0, 1]; `bounds` is None for data without a range.
    """

    targets: Tensor
    read: Callable[[Sequence[int]], Tensor]
    bounds: tuple[float, float] | None = (0.0, 1.0)

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
