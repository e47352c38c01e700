"""Batch norm in training mode: layer rules against double backward, group by group, in double precision."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional

from leakscope.fastgrad import Unsupported, compile_network
from leakscope.fastgrad.batch_norm import BatchNorm, join, split
from leakscope.fastgrad.winograd import Winograd
from leakscope.rng import generator
from usual_networks import ResidualBlock

NORMED = ["mlp", "convnet", "resnet"]


def _check(bench, model: nn.Module, inputs, targets, *, mode="tangents", limit=1e-8) -> None:
    network = compile_network(copy.deepcopy(model), loss=functional.cross_entropy, example=inputs[0], mode=mode)
    first = network.gradients(inputs, targets)
    direction = {name: torch.sin(37 * value) for name, value in first.gradients.items()}
    expected = bench.oracle(copy.deepcopy(model), inputs, targets, direction)
    assert first.gradients.keys() == expected.gradients.keys()
    for name, value in expected.gradients.items():
        # Through a norm a bias before it has no gradient but rounding.
        torch.testing.assert_close(first.gradients[name], value, rtol=1e-8, atol=1e-11)
    to_inputs, to_targets = network.pullback(first, direction)
    assert bench.error(to_inputs, expected.inputs) < limit
    if targets.is_floating_point():
        assert bench.error(to_targets, expected.targets) < limit


@pytest.mark.parametrize("name", NORMED)
@pytest.mark.parametrize(("groups", "n", "soft"), [(1, 3, False), (3, 2, True)])
def test_tangents_are_exact(bench, name, groups, n, soft):
    inputs, targets = bench.problem(groups, n, soft=soft)
    _check(bench, bench.network(name).train(), inputs, targets)


def test_tangents_are_exact_on_a_residual_block_as_people_write_it(bench):
    inputs = torch.rand(2, 3, 3, 8, 8, generator=generator(2), dtype=torch.float64)
    _check(bench, bench.settle(ResidualBlock()).train(), inputs, torch.tensor([[0, 1, 2], [3, 3, 1]]))


@pytest.mark.parametrize("options", [{"affine": False}, {"track_running_stats": False}, {"eps": 0.1}], ids=str)
def test_kinds_of_batch_norm(bench, options):
    layers = [nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, **options), nn.Sigmoid(), nn.Flatten(), nn.Linear(1176, 10)]
    inputs, targets = bench.problem(2, 2)
    _check(bench, bench.settle(nn.Sequential(*layers)).train(), inputs, targets)


def test_a_frozen_norm_and_one_in_evaluation_mode_stand_beside_one_in_training(bench):
    model = bench.network("convnet").train()
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    norms[0].eval()
    norms[1].weight.requires_grad_(False)
    norms[2].bias.requires_grad_(False)
    inputs, targets = bench.problem(2, 2)
    _check(bench, model, inputs, targets)


@pytest.mark.parametrize("name", NORMED)
def test_differences_are_close(bench, name):
    inputs, targets = bench.problem(2, 3)
    _check(bench, bench.network(name).train(), inputs, targets, mode="differences", limit=1e-6)


# Statistics of four numbers bend most, and differences see it; a run then starts with tangents.
LIMITS = {"mlp": 1e-2, "convnet": 5e-3, "resnet": 5e-3}


@pytest.mark.parametrize("name", LIMITS)
def test_differences_keep_their_promise_in_single_precision(bench, name):
    model = bench.network(name, torch.float32).train()
    inputs, targets = bench.problem(1, 4, dtype=torch.float32)
    network = compile_network(copy.deepcopy(model), loss=functional.cross_entropy, example=inputs[0])
    first = network.gradients(inputs, targets)
    goal = network.gradients(bench.problem(1, 4, seed=1, dtype=torch.float32)[0], targets).gradients
    direction = bench.matching_direction(first.gradients, goal)
    expected = bench.oracle(copy.deepcopy(model), inputs, targets, direction).inputs
    assert bench.error(network.pullback(first, direction)[0], expected) < LIMITS[name]


def test_tiles_and_images_go_through_the_same_norm(bench):
    inputs, _ = bench.problem(1, 3)
    model = bench.network("convnet").train()
    network = compile_network(model, loss=functional.cross_entropy, example=inputs[0])
    kinds = [type(step.layer) for step in network.instructions]
    assert kinds.count(BatchNorm) == 6
    assert any(first is Winograd and second is BatchNorm for first, second in pairwise(kinds))
    values = torch.rand(4, 4, 6, 2, 3, 5)
    parts = split(values, 3)
    assert [tuple(part.shape) for part in parts] == [(32, 5, 2, 3)] * 3
    assert torch.equal(join(parts, like=values), values)
    torch.testing.assert_close(parts[1].mean((0, 2, 3)), values[:, :, 2:4].mean((0, 1, 2, 3, 4)))


def test_one_value_per_channel_is_refused_with_a_reason():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Linear(6, 4)).train()
    with pytest.raises(Unsupported, match="1 examples"):
        compile_network(model, loss=functional.cross_entropy, example=torch.rand(1, 3, 2, 2))
