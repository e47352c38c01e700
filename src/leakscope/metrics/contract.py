"""What every metric promises; public through `leakscope.testing`."""

from __future__ import annotations

import torch

from leakscope import rng as random
from leakscope.metrics.metric import Metric


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
