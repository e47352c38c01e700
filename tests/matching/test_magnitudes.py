from __future__ import annotations

import pytest
import torch
from torch import nn

from leakscope.matching.penalties import Clipping, InputNorm, Scaling, Trial
from leakscope.rng import generator
from tiny import batch_of, dense, seen_of


def trial(x: torch.Tensor) -> Trial:
    return Trial(x, x, torch.zeros(x.shape[:2], dtype=torch.long), nn.Identity())


@pytest.mark.parametrize("penalty", [InputNorm(1.0), Clipping(1.0), Scaling(1.0)], ids=lambda p: type(p).__name__)
def test_a_penalty_is_one_differentiable_number_per_group(penalty):
    x = (2 * torch.rand(2, 2, 1, 4, 3, generator=generator(0), dtype=torch.float64) - 0.5).requires_grad_()
    value = penalty.value(trial(x))
    assert value.shape == (2,)
    (slope,) = torch.autograd.grad(value.sum(), x)
    assert torch.isfinite(slope).all()
    # A step against the slope lowers each group.
    assert bool((penalty.value(trial((x - 0.01 * slope / slope.abs().max()).detach())) < value).all())
    torch.testing.assert_close(penalty.value(trial(x[1:]))[0], value[1])


def test_clipping_is_zero_inside_the_range_and_squared_outside():
    x = torch.tensor([[[[[0.0, 1.0], [0.5, 3.0]]]], [[[[0.2, 1.0], [0.5, 0.5]]]]])
    assert Clipping(1.0).value(trial(x)).tolist() == [1.0, 0.0]


def test_scaling_is_zero_for_an_image_that_fills_its_range_and_stretches_one_that_does_not():
    full = torch.tensor([[[[[0.0, 1.0], [0.25, 0.5]]]]])
    assert float(Scaling(1.0).value(trial(full))) == pytest.approx(0, abs=1e-12)
    narrow = (0.4 + 0.2 * full).requires_grad_()
    (slope,) = torch.autograd.grad(Scaling(1.0).value(trial(narrow)).sum(), narrow)
    # Dark pixels are moved down and bright ones up.
    assert slope.flatten()[0] > 0 > slope.flatten()[1]


def test_the_range_is_that_of_the_data():
    seen = seen_of(dense(), batch_of([1]))
    wide = type(seen)(**{**vars(seen), "bounds": (-1.0, 3.0)})
    x = torch.tensor([[[[[-1.0, 3.0], [0.5, 2.0]]]]])
    free, bound = trial(x), Trial(x, x, torch.zeros(1, 1, dtype=torch.long), nn.Identity(), seen=(wide,))
    assert float(Clipping(1.0).value(free)) > 0
    assert float(Clipping(1.0).value(bound)) == 0
    assert float(Scaling(1.0).value(bound)) == pytest.approx(0, abs=1e-12)
