"""The plane of two clients: sizes, classes, and that either alone misleads about the other."""

from __future__ import annotations

import pytest
import torch

from leakscope.data.gaussians import two_gaussians
from leakscope.errors import UsageError


def test_sizes_classes_and_moments():
    task = two_gaussians(4_000, seed=3)
    assert [len(batch) for batch in task.train] == [3_600, 3_600]
    assert len(task.test) == 800
    first, second = task.train
    assert first.inputs[first.targets == 0].mean(0).tolist() == pytest.approx([-1.5, -1.0], abs=0.06)
    assert second.inputs[second.targets == 0].mean(0).tolist() == pytest.approx([1.5, 0.7], abs=0.06)
    assert first.inputs[first.targets == 1].std(0).tolist() == pytest.approx([0.8, 0.8], abs=0.04)
    assert second.inputs[second.targets == 1].std(0).tolist() == pytest.approx([0.5, 0.5], abs=0.04)
    assert abs(first.targets.double().mean() - 0.5) < 0.02


def test_the_seed_decides():
    one, same, other = two_gaussians(100, seed=1), two_gaussians(100, seed=1), two_gaussians(100, seed=2)
    assert torch.equal(one.test.inputs, same.test.inputs)
    assert not torch.equal(one.test.inputs, other.test.inputs)
    with pytest.raises(UsageError, match="at least 10 samples"):
        two_gaussians(9)


def test_what_serves_one_client_misleads_the_other():
    first, second = two_gaussians(2_000).train
    shares = [float(((batch.inputs[:, 1] > 0).long() == batch.targets).double().mean()) for batch in (first, second)]
    assert shares[0] > 0.87
    assert shares[1] < 0.6
