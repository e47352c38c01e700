"""What a metric is: a pure function on pairs of examples, how to read its numbers, and what it promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope import rng as random


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


def check_metric(metric: Metric, *, seed: int = 0) -> None:
    """Check that a metric is per example, blind to order, and best for identical images."""
    draw = random.generator(seed, "metric")
    truth, noise = (random.uniform((3, 3, 32, 32), draw) for _ in range(2))
    value = metric(noise, truth)
    assert value.shape == (3,), f"{metric.name}: expected one value per example, got {list(value.shape)}"
    order = torch.tensor([2, 0, 1])
    moved = metric(noise[order], truth[order])
    assert torch.allclose(moved, value[order]), f"{metric.name}: depends on the order of examples"
    same = metric(truth, truth)
    better = same > value if metric.higher_is_better else same < value
    assert bool(better.all()), f"{metric.name}: identical images are not better than noise"
    near = metric((truth + 0.02 * (noise - 0.5)).clamp(0, 1), truth)
    closer = near > value if metric.higher_is_better else near < value
    assert bool(closer.all()), f"{metric.name}: nearly identical images are not better than noise"
