"""Only the last layers compared: the same derivative as plain double backward, from a network that is cut in two."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from leakscope.fastgrad import Program, TailProgram, Unsupported, compile_network, compile_tail
from leakscope.fastgrad.tail import split_before

CASES = [(1, 1, False), (1, 3, False), (3, 1, True), (3, 3, True)]
NETWORKS = ["mlp", "lenet", "convnet", "resnet"]


def last_names(model: nn.Module, share: float) -> tuple[str, ...]:
    """The last parameters of a network, so many of a hundred."""
    names = [name for name, _ in model.named_parameters()]
    return tuple(names[int((1 - share) * len(names)) :])


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("groups", "n", "soft"), CASES)
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_tangents_are_exact(bench, name, groups, n, soft, share):
    model = bench.network(name)
    wanted = last_names(model, share)
    inputs, targets = bench.problem(groups, n, soft=soft)
    network = compile_tail(model, wanted, loss=functional.cross_entropy, example=inputs[0], mode="tangents")
    assert isinstance(network, TailProgram)
    first = network.gradients(inputs, targets)
    goal = network.gradients(bench.problem(groups, n, seed=1)[0], targets).gradients
    found, other = ({key: value[key] for key in wanted} for value in (first.gradients, goal))
    direction = bench.matching_direction(found, other)
    zeros = {key: torch.zeros_like(value).expand(groups, *value.shape) for key, value in model.named_parameters()}
    expected = bench.oracle(model, inputs, targets, {**zeros, **direction})
    to_inputs, to_targets = network.pullback(first, direction)
    assert set(wanted) <= set(network.names) < set(zeros)
    for key in network.names:
        assert bench.error(first.gradients[key], expected.gradients[key]) < 1e-9, key
    assert bench.error(to_inputs, expected.inputs) < 1e-9
    if soft:
        assert bench.error(to_targets, expected.targets) < 1e-9
    else:
        assert to_targets is None


@pytest.mark.parametrize("name", NETWORKS)
def test_differences_agree_with_tangents(bench, name):
    model, wanted = bench.network(name), last_names(bench.network(name), 0.4)
    inputs, targets = bench.problem(2, 2)
    pulled = []
    for mode in ("tangents", "differences"):
        network = compile_tail(model, wanted, loss=functional.cross_entropy, example=inputs[0], mode=mode)
        first = network.gradients(inputs, targets)
        goal = network.gradients(bench.problem(2, 2, seed=1)[0], targets).gradients
        direction = bench.matching_direction(
            {key: first.gradients[key] for key in wanted}, {key: goal[key] for key in wanted}
        )
        pulled.append(network.pullback(first, direction)[0])
    assert bench.error(pulled[1], pulled[0]) < 1e-5


def test_the_head_has_none_of_the_compared_layers_and_as_many_others_as_can_be(bench):
    model = bench.network("convnet")
    inputs, _ = bench.problem(1, 1)
    weights = [name for name, value in model.named_parameters() if value.ndim > 1]
    for place, name in enumerate(weights[1:], start=1):
        network = compile_tail(model, [name], loss=functional.cross_entropy, example=inputs[0])
        assert isinstance(network, TailProgram)
        kept = [one for one in network.tail.names if one in weights]
        assert kept == weights[place:]


def test_the_first_layer_compared_leaves_nothing_to_cut_off(bench):
    model = bench.network("mlp")
    inputs, _ = bench.problem(1, 1)
    first = next(name for name, _ in model.named_parameters())
    network = compile_tail(model, [first], loss=functional.cross_entropy, example=inputs[0])
    whole = compile_network(model, loss=functional.cross_entropy, example=inputs[0])
    # What comes before the first layer has no weights and may be cut off.
    assert network.names == whole.names


def test_a_block_with_a_shortcut_is_not_cut_inside(bench):
    """The value that goes around a block would cross beside the one that goes through it."""
    model = bench.network("resnet")
    inputs, _ = bench.problem(1, 1)
    for name, _ in model.named_parameters():
        network = compile_tail(model, [name], loss=functional.cross_entropy, example=inputs[0])
        if isinstance(network, TailProgram):
            reads = {value for one in network.tail.instructions for value in one.inputs}
            made = {one.output for one in network.tail.instructions}
            assert reads - made == {0}


class Tied(nn.Module):
    """One weight in two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def test_a_weight_of_two_layers_is_refused_though_one_of_them_is_cut_off():
    with pytest.raises(Unsupported, match="more than one layer"):
        compile_tail(Tied(), ["second.bias"], loss=functional.cross_entropy, example=torch.rand(2, 4))


def test_nothing_is_cut_off_where_nothing_is_wanted(bench):
    model = bench.network("mlp")
    program = compile_network(model, loss=functional.cross_entropy, example=bench.problem(1, 1)[0][0])
    assert split_before(program.instructions, ()) is None
    assert isinstance(program, Program)
