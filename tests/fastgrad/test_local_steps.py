"""Local training by layer rules against double backward through the whole loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from leakscope.fastgrad import LocalProgram, compile_network
from leakscope.rng import generator, normal_like

MODES = ["differences", "tangents"]
# By mode: tangents are exact; a quotient in float64 is good to about the root of its rounding.
LIMITS = {"tangents": 1e-8, "differences": 1e-4}
# So large that what one step does to the next is a good part of the derivative: see `test_what_is_at_stake`.
RATES = {"mlp": 0.005, "lenet": 0.2, "convnet": 0.005, "resnet": 0.005, "frozen parts": 0.05}

ORDERS = {
    "one step": ((0,),),
    "two steps": ((0,), (1,)),
    "four steps": ((0,), (1,), (2,), (3,)),
    "batches of two": ((0, 1), (2, 3)),
    "two epochs": ((0, 1), (2, 3), (0, 1), (2, 3)),
    "an odd order": ((2,), (0, 1), (2,), (3, 1)),
}

Order = Sequence[Sequence[int]]


def train_plainly(
    model: nn.Module, inputs: Tensor, targets: Tensor, *, order: Order, rates: Sequence[float]
) -> dict[str, Tensor]:
    """W_T − W_0 of one group with a graph through all of it."""
    start = {name: p.detach().requires_grad_() for name, p in model.named_parameters() if p.requires_grad}
    weights = dict(start)
    for rows, rate in zip(order, rates, strict=True):
        logits = functional_call(model, weights, (inputs[list(rows)].clone(),))
        value = functional.cross_entropy(logits, targets[list(rows)])
        grads = torch.autograd.grad(value, list(weights.values()), create_graph=True)
        weights = {name: w - rate * g for (name, w), g in zip(weights.items(), grads, strict=True)}
    return {name: weights[name] - start[name] for name in start}


def differentiate_plainly(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    direction: Mapping[str, Tensor],
    *,
    order: Order,
    rates: Sequence[float],
) -> tuple[dict[str, Tensor], Tensor, Tensor | None]:
    """The change of the weights, and the derivatives of ⟨direction, change⟩ in inputs and soft targets."""
    soft, rows = targets.is_floating_point(), []
    for group in range(len(inputs)):
        leaves = [inputs[group].clone().requires_grad_(), targets[group].clone().requires_grad_(soft)]
        change = train_plainly(model, leaves[0], leaves[1], order=order, rates=rates)
        inner = torch.stack([(change[name] * v[group]).sum() for name, v in direction.items()]).sum()
        rows.append((change, torch.autograd.grad(inner, leaves if soft else leaves[:1])))
    change = {name: torch.stack([row[0][name].detach() for row in rows]) for name in rows[0][0]}
    by_input = torch.stack([row[1][0] for row in rows])
    return change, by_input, torch.stack([row[1][1] for row in rows]) if soft else None


def direction_for(model: nn.Module, groups: int) -> dict[str, Tensor]:
    """Another direction for every group, as long as the parameter it belongs to."""
    rng, found = generator(3, "direction"), {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        drawn = normal_like(parameter.detach().expand(groups, *parameter.shape), rng)
        found[name] = drawn * parameter.detach().norm() / parameter.numel() ** 0.5
    return found


def compare(bench, name, *, mode, order, groups=1, soft=False, rates=None, count=4, model=None):
    """Relative errors of the change, of the derivative in the inputs, and of that in soft targets."""
    model = bench.network(name) if model is None else model
    inputs, targets = bench.problem(groups, count, soft=soft)
    rates = (RATES[name],) * len(order) if rates is None else rates
    direction = direction_for(model, groups)
    change, by_input, by_target = differentiate_plainly(model, inputs, targets, direction, order=order, rates=rates)
    network = compile_network(model, loss=functional.cross_entropy, example=inputs[0][list(order[0])], mode=mode)
    local = LocalProgram(network, tuple(map(tuple, order)), tuple(rates), 1.0)
    trained = local.gradients(inputs, targets)
    to_inputs, to_targets = local.pullback(trained, direction)
    errors = [bench.error(trained.gradients[key], value) for key, value in change.items()]
    errors.append(bench.error(to_inputs, by_input))
    assert (to_targets is None) is (by_target is None)
    return [*errors, bench.error(to_targets, by_target)] if soft else errors


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("name", ["mlp", "lenet"])
def test_every_order_of_steps(bench, name, order, mode):
    assert max(compare(bench, name, mode=mode, order=order)) < LIMITS[mode]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["mlp", "convnet", "resnet"])
@pytest.mark.parametrize("soft", [False, True], ids=["classes", "soft targets"])
def test_every_group_is_trained_on_its_own(bench, name, soft, mode):
    order = ((0, 1), (2, 0), (1, 2))
    assert max(compare(bench, name, mode=mode, order=order, groups=2, soft=soft, count=3)) < LIMITS[mode]


@pytest.mark.parametrize("mode", MODES)
def test_every_step_has_its_own_rate(bench, mode):
    errors = compare(bench, "mlp", mode=mode, order=ORDERS["four steps"], rates=(0.01, 0.003, 0.001, 0.005))
    assert max(errors) < LIMITS[mode]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["convnet", "resnet"])
def test_batch_norm_in_training_mode_has_the_statistics_of_every_step(bench, name, mode):
    model = bench.network(name).train()
    errors = compare(bench, name, mode=mode, order=((0, 1), (2, 0), (1, 2)), groups=2, count=3, model=model)
    # Its biases do nothing, and their change is nothing but rounding.
    assert errors[-1] < LIMITS[mode]


def frozen_parts() -> nn.Module:
    """Layers of which one part is trained: a weight, a bias, γ, β; and a norm that stands alone."""
    norms = [nn.BatchNorm1d(8) for _ in range(3)]
    layers = [nn.Linear(768, 8), norms[0], nn.Tanh(), nn.Linear(8, 8), norms[1], nn.Tanh(), nn.BatchNorm1d(8)]
    model = nn.Sequential(nn.Flatten(), *layers, nn.Linear(8, 8, bias=False), norms[2], nn.Linear(8, 10))
    for parameter in (model[1].weight, model[2].weight, model[4].bias, model[5].bias, model[8].weight, model[10].bias):
        parameter.requires_grad_(False)
    return model


@pytest.mark.parametrize("mode", MODES)
def test_parameters_that_are_not_trained_do_not_move(bench, mode):
    model = bench.settle(frozen_parts())
    errors = compare(bench, "frozen parts", mode=mode, order=ORDERS["an odd order"], groups=2, model=model)
    assert max(errors) < LIMITS[mode]


def plain_steps(bench, name, mode, *, groups=1, dtype=torch.float64, factor=1.0):
    """Local training on the network `name`, with inputs, targets and a direction."""
    model = bench.network(name, dtype)
    inputs, targets = bench.problem(groups, 2, dtype=dtype)
    network = compile_network(model, loss=functional.cross_entropy, example=inputs[0][:1], mode=mode)
    local = LocalProgram(network, ((0,), (1,), (0,)), (RATES[name],) * 3, factor)
    return model, local, inputs, targets, direction_for(model, groups)


@pytest.mark.parametrize("name", ["mlp", "lenet", "convnet", "resnet"])
def test_differences_in_single_precision(bench, name):
    found = []
    for mode in MODES:
        _, local, inputs, targets, direction = plain_steps(bench, name, mode, groups=2, dtype=torch.float32)
        found.append(local.pullback(local.gradients(inputs, targets), direction)[0])
    for group in range(2):
        assert bench.error(found[0][group], found[1][group]) < 5e-3


@pytest.mark.parametrize("name", ["mlp", "lenet", "convnet", "resnet"])
def test_what_is_at_stake(bench, name, monkeypatch):
    # The tests above could not tell a wrong Hessian from a right one if it made no difference.
    _, local, inputs, targets, direction = plain_steps(bench, name, "tangents")
    exact = local.pullback(local.gradients(inputs, targets), direction)[0]
    monkeypatch.setattr("leakscope.fastgrad.second_pass._take_changes", lambda *_: {})
    assert bench.error(local.pullback(local.gradients(inputs, targets), direction)[0], exact) > 0.1


@pytest.mark.parametrize("mode", MODES)
def test_same_inputs_same_bytes_and_nothing_of_the_model_moves(bench, mode):
    model, local, inputs, targets, direction = plain_steps(bench, "convnet", mode, dtype=torch.float32)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    kept = {name: value.clone() for name, value in direction.items()}
    local.pullback(local.gradients(inputs, targets), direction)
    results = []
    for _ in range(2):
        trained = local.gradients(inputs, targets)
        results.append((trained.gradients, local.pullback(trained, direction)[0]))
    assert torch.equal(results[0][1], results[1][1])
    assert all(torch.equal(value, results[1][0][name]) for name, value in results[0][0].items())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(value, kept[name]) for name, value in direction.items())


@pytest.mark.parametrize("mode", MODES)
def test_a_trajectory_may_be_gone_through_backwards_twice(bench, mode):
    _, local, inputs, targets, direction = plain_steps(bench, "convnet", mode)
    trained = local.gradients(inputs, targets)
    once = local.pullback(trained, direction)[0]
    local.pullback(local.gradients(inputs.flip(1), targets), direction)
    assert bench.error(local.pullback(trained, direction)[0], once) < LIMITS[mode]


def test_every_step_keeps_the_difference_that_suits_it(bench):
    # One for all of them would be fitted anew in every step: on LeNet that made 6 passes of 4.
    _, local, inputs, targets, _ = plain_steps(bench, "lenet", "differences")
    seconds = [[step.network.second for step in local.gradients(inputs, targets).steps] for _ in range(2)]
    assert len({id(one) for one in seconds[0]}) == len(local.order)
    assert all(left is right for left, right in zip(*seconds, strict=True))


@pytest.mark.parametrize("mode", MODES)
def test_missing_names_stand_for_zero_and_the_factor_scales_both(bench, mode):
    _, local, inputs, targets, direction = plain_steps(bench, "mlp", mode)
    chosen = {name: direction[name] for name in local.names[2:4]}
    zeros = {name: torch.zeros_like(value) for name, value in direction.items()}
    trained = local.gradients(inputs, targets)
    expected = local.pullback(trained, zeros | chosen)[0]
    assert bench.error(local.pullback(trained, chosen)[0], expected) < LIMITS[mode]
    assert not local.pullback(trained, {})[0].any()
    _, scaled, *_ = plain_steps(bench, "mlp", mode, factor=-2.5)
    again = scaled.gradients(inputs, targets)
    assert all(bench.error(again.gradients[name], -2.5 * value) < 1e-12 for name, value in trained.gradients.items())
    assert bench.error(scaled.pullback(again, chosen)[0], -2.5 * expected) < LIMITS[mode]


@pytest.mark.parametrize("mode", MODES)
def test_a_trajectory_keeps_no_weights_in_another_form(bench, mode):
    # Winograd's are four times as large as the parameters, and there is one set for every step.
    _, local, inputs, targets, _ = plain_steps(bench, "convnet", mode)
    for step in local.gradients(inputs, targets).steps:
        assert all(memo.weights is None for memo in step.first.memos)
        assert not step.first.gradients
