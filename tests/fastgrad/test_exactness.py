"""Both modes against plain double backward, on whole networks."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from leakscope.fastgrad import compile_network
from leakscope.fastgrad.winograd import Winograd
from leakscope.models import build
from leakscope.rng import generator

CASES = [(1, 1, False), (1, 3, False), (3, 1, True), (3, 3, True)]


@pytest.mark.parametrize("name", ["mlp", "lenet", "convnet", "resnet"])
@pytest.mark.parametrize(("groups", "n", "soft"), CASES)
def test_tangents_are_exact(bench, name, groups, n, soft):
    model = bench.network(name)
    inputs, targets = bench.problem(groups, n, soft=soft)
    network = compile_network(model, loss=functional.cross_entropy, example=inputs[0], mode="tangents")
    first = network.gradients(inputs, targets)
    goal = network.gradients(bench.problem(groups, n, seed=1)[0], targets).gradients
    direction = bench.matching_direction(first.gradients, goal)
    expected = bench.oracle(model, inputs, targets, direction)
    to_inputs, to_targets = network.pullback(first, direction)
    assert tuple(first.gradients) == tuple(expected.gradients) == network.names
    for key, value in expected.gradients.items():
        assert bench.error(first.gradients[key], value) < 1e-9, key
    assert bench.error(to_inputs, expected.inputs) < 1e-9
    if soft:
        assert bench.error(to_targets, expected.targets) < 1e-9
    else:
        assert to_targets is None


def _single_precision(bench, model, *, far: bool, shape: tuple[int, ...]) -> tuple[float, float]:
    """Cosine and relative error of differences against double backward, one image."""
    inputs, other = (torch.rand(1, 1, *shape, generator=generator(seed, "image")) for seed in (0, 1))
    targets = torch.tensor([[3]])
    network = compile_network(model, loss=functional.cross_entropy, example=inputs[0])
    first = network.gradients(inputs, targets)
    goal = network.gradients(other if far else 0.98 * inputs + 0.02 * other, targets).gradients
    direction = bench.matching_direction(first.gradients, goal)
    expected = bench.oracle(model, inputs, targets, direction).inputs
    found, _ = network.pullback(first, direction)
    return bench.cosine(found, expected), bench.error(found, expected)


# Rounding of single precision grows with depth, and the best step can only balance it
# against curvature: 4e-6 behind 21 convolutions leaves about 3e-3.
LIMITS = {"mlp": 2e-3, "lenet-dlg": 2e-3, "convnet": 3e-3, "resnet20-4": 5e-3}


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("far", [True, False])
def test_differences_on_the_reference_networks(bench, name, far):
    model = build(name, num_classes=10, in_channels=3, image_size=32, seed=0).eval()
    cosine, error = _single_precision(bench, model, far=far, shape=(3, 32, 32))
    assert cosine > 0.9999
    assert error < LIMITS[name]


@pytest.mark.parametrize("name", ["mlp", "lenet", "convnet", "resnet"])
@pytest.mark.parametrize("far", [True, False])
def test_differences_on_badly_scaled_networks(bench, name, far):
    # Drawn twice as wide as usual, with random norms: rounding leaves less room between
    # too short and too long a step.
    cosine, error = _single_precision(bench, bench.network(name, torch.float32), far=far, shape=(3, 16, 16))
    assert cosine > 0.9999
    assert error < 5e-3


@pytest.mark.parametrize("name", ["lenet", "convnet", "resnet"])
def test_differences_agree_with_tangents_for_each_group(bench, name):
    # Against double backward a unit within rounding of its kink may switch; within one
    # implementation the patterns are the same, so only the quotient itself is tested here.
    model = bench.network(name, torch.float32)
    inputs, targets = bench.problem(3, 3, soft=True, dtype=torch.float32)
    goal_inputs = bench.problem(3, 3, seed=1, dtype=torch.float32)[0]
    found = {}
    for mode in ("differences", "tangents"):
        network = compile_network(model, loss=functional.cross_entropy, example=inputs[0], mode=mode)
        first = network.gradients(inputs, targets)
        direction = bench.matching_direction(first.gradients, network.gradients(goal_inputs, targets).gradients)
        found[mode] = network.pullback(first, direction)
    for group in range(3):
        assert bench.error(found["differences"][0][group], found["tangents"][0][group]) < 5e-3
    assert bench.error(found["differences"][1], found["tangents"][1]) < 5e-3


def test_differences_improve_with_precision(bench):
    model = bench.network("resnet")
    inputs, targets = bench.problem(2, 1)
    networks = {
        mode: compile_network(model, loss=functional.cross_entropy, example=inputs[0], mode=mode)
        for mode in ("differences", "tangents")
    }
    first = {mode: network.gradients(inputs, targets) for mode, network in networks.items()}
    direction = {name: value.sin() for name, value in first["tangents"].gradients.items()}
    results = [networks[mode].pullback(first[mode], direction)[0] for mode in networks]
    assert bench.error(*results) < 1e-6


def test_the_small_networks_do_exercise_winograd(bench):
    for name in ("convnet", "resnet"):
        inputs, _ = bench.problem(1, 1)
        network = compile_network(bench.network(name), loss=functional.cross_entropy, example=inputs[0])
        assert sum(isinstance(step.layer, Winograd) for step in network.instructions) >= 3
