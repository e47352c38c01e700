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
RATE = 0.2

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
        drawn = normal_like(parameter.detach().expand(groups, *parameter.shape), rng)
        found[name] = drawn * parameter.detach().norm() / parameter.numel() ** 0.5
    return found


def compare(bench, name, *, mode, order, groups=1, soft=False, rates=None, count=4, model=None):
    """Relative errors of the change, of the derivative in the inputs, and of that in soft targets."""
    model = bench.network(name) if model is None else model
    inputs, targets = bench.problem(groups, count, soft=soft)
    rates = (RATE,) * len(order) if rates is None else rates
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
