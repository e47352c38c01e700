"""What a metric is: a pure function on pairs of examples, and how to read its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Metric:
    """A per-example measure of how close reconstructions are to the truth.

    Attributes:
        name: as `score` and `Scores` spell it.
        function: takes reconstructions and their examples, [n, …] in [0, 1] each, and returns [n].
        higher_is_better: said from the reconstruction's side: where it is True, a higher number means a closer picture
            and therefore a worse leak.
        unit: behind the number, "" for none.
        reference: where it is defined.
        nothing: what an example scores of which nothing usable came back. Finite, so it cannot vanish in an average.
        images_only: whether inputs must be images [n, C, H, W]; for anything else `score` gives NaN.

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
    nothing: float
    images_only: bool = False

    def __call__(self, reconstruction: Tensor, truth: Tensor) -> Tensor:
        """Return one value per pair, [n]."""
        return self.function(reconstruction, truth)
