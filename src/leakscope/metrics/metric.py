"""What a metric is: a pure function on pairs of examples, and how to read its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Metric:
    """A per-example measure of how close reconstructions are to the truth.

    `higher_is_better` is said from the reconstruction's side: where it is True, a higher
    number means a closer picture and therefore a worse leak.

    Example:
        >>> import torch
        >>> from leakscope.metrics import PSNR
        >>> PSNR(torch.zeros(1, 1, 8, 8), torch.ones(1, 1, 8, 8)).tolist()
        [0.0]
    """

    name: str
    function: Callable[[Tensor, Tensor], Tensor]
    higher_is_better: bool
    unit: str
    reference: str

    def __call__(self, reconstruction: Tensor, truth: Tensor) -> Tensor:
        """Return one value per pair, [n]."""
        return self.function(reconstruction, truth)
