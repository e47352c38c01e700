from __future__ import annotations

import pytest
import torch
from torch import nn

from leakscope.matching.penalties import GroupConsistency, Trial
from leakscope.matching.penalties.group_consistency import consensus, matching_order, register
from leakscope.rng import generator


def pictures(count: int, *, seed: int = 0, side: int = 16) -> torch.Tensor:
    """Smooth pictures [count, 1, side, side]."""
    coarse = torch.rand(count, 1, 4, 4, generator=generator(seed), dtype=torch.float64)
    return nn.functional.interpolate(coarse, size=(side, side), mode="bilinear", align_corners=False)


def at(x: torch.Tensor, labels: list[int], *, restarts: int, step: int = 0, steps: int = 0) -> Trial:
    targets = torch.tensor([labels] * len(x))
    return Trial(x, x, targets, nn.Identity(), restarts=restarts, step=step, steps=steps)


@pytest.mark.parametrize("shift", [(0, 0), (1, 0), (-2, 1), (2, 2)])
def test_registration_undoes_a_shift(shift):
    truth = pictures(2)
    moved = truth.roll(shift, dims=(-2, -1))
    torch.testing.assert_close(register(moved, truth, reach=0.125), truth)


def test_registration_does_not_reach_further_than_allowed():
    truth = pictures(1)
    far = truth.roll((6, 0), dims=(-2, -1))
    assert not torch.allclose(register(far, truth, reach=0.125), truth)
    torch.testing.assert_close(register(far, truth, reach=0.5), truth)


def test_examples_are_matched_within_their_label_only():
    truth = pictures(4)
    swapped = truth[[1, 0, 3, 2]]
    assert matching_order(swapped, truth, torch.tensor([5, 5, 7, 7])).tolist() == [1, 0, 3, 2]
    assert matching_order(swapped, truth, torch.tensor([1, 2, 3, 4])).tolist() == [0, 1, 2, 3]
    crossed = truth[[2, 3, 0, 1]]
    assert sorted(matching_order(crossed, truth, torch.tensor([5, 5, 7, 7])).tolist()[:2]) == [0, 1]


def test_the_consensus_comes_in_the_order_of_each_seed():
    truth = pictures(3)
    order = torch.tensor([2, 0, 1])
    seeds = torch.stack([truth, truth[order]])
    torch.testing.assert_close(consensus(seeds, torch.zeros(3, dtype=torch.long)), seeds)


def test_seeds_that_agree_cost_nothing_and_victims_do_not_mix():
    first, second = pictures(2, seed=1), pictures(2, seed=2)
    x = torch.stack([first, first, second, second + 0.1])
    value = GroupConsistency(1.0).value(at(x, [0, 1], restarts=2))
    assert value[:2].tolist() == pytest.approx([0, 0], abs=1e-12)
    assert value[2:].tolist() == pytest.approx([0.0025, 0.0025])


def test_the_slope_draws_seeds_together():
    truth = pictures(1)
    noise = 0.1 * torch.randn(3, *truth.shape, generator=generator(3), dtype=torch.float64)
    x = (truth + noise).requires_grad_()
    value = GroupConsistency(1.0).value(at(x, [0], restarts=3))
    (slope,) = torch.autograd.grad(value.sum(), x)
    nearer = (x - 50 * slope).detach()
    assert float(nearer.std(0).mean()) < 0.7 * float(x.detach().std(0).mean())


def test_it_waits_for_its_beginning_and_needs_company():
    x = torch.rand(2, 1, 1, 8, 8, dtype=torch.float64).requires_grad_()
    late = GroupConsistency(1.0, begin=0.25)
    for steps in (20, 200):
        first = steps // 4
        assert late.value(at(x, [0], restarts=2, step=first - 1, steps=steps)).tolist() == [0.0, 0.0]
        assert float(late.value(at(x, [0], restarts=2, step=first, steps=steps))[0].detach()) > 0
    alone = GroupConsistency(1.0).value(at(x, [0], restarts=1))
    assert alone.tolist() == [0.0, 0.0]
    assert torch.autograd.grad(alone.sum(), x)[0].abs().max() == 0


def test_vectors_are_averaged_without_shifts():
    x = torch.rand(2, 3, 7, dtype=torch.float64)
    assert GroupConsistency(1.0).value(at(x, [0, 1, 2], restarts=2)).shape == (2,)
