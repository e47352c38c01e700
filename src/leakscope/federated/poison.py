"""A client that works against the others, for experiments."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from leakscope.errors import UsageError
from leakscope.tensors import scale
from leakscope.types import Batch, SharedUpdate


@dataclass(frozen=True)
class Poison:
    """What a poisoned client does to its data and to its update.

    Attributes:
        flip_labels: number of classes; label y becomes classes − 1 − y, in training and in held-out examples alike.
            None leaves labels alone.
        factor: the update is multiplied by it before it is sent: −1 turns it round, 10 makes it loud.
    """

    flip_labels: int | None = None
    factor: float = 1.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.factor) or (self.flip_labels is not None and self.flip_labels < 2):
            raise UsageError(
                f"Poison needs a finite factor and at least two classes to flip, got factor={self.factor}, "
                f"flip_labels={self.flip_labels}"
            )

    def spoil_data(self, batch: Batch) -> Batch:
        """The examples as the poisoned client uses them."""
        if self.flip_labels is None:
            return batch
        if batch.targets.ndim != 1 or batch.targets.is_floating_point() or int(batch.targets.max()) >= self.flip_labels:
            raise UsageError(
                f"flip_labels={self.flip_labels} needs class labels [n] below it, got {batch.targets.dtype} of shape "
                f"{list(batch.targets.shape)}; give the number of classes, or poison the update with factor="
            )
        return Batch(batch.inputs, self.flip_labels - 1 - batch.targets, batch.bounds)

    def spoil_update(self, update: SharedUpdate) -> SharedUpdate:
        """The update as it is sent."""
        return update if self.factor == 1 else replace(update, tensors=scale(update.tensors, self.factor))
