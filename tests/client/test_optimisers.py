"""Local training against `torch.optim`, step by step; and its derivative."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from leakscope.client import replay_local, run_client, trainable
from leakscope.rng import generator
from leakscope.types import LocalTraining, SharedUpdate
from tiny import batch_of, dense

SGD, ADAM = {"lr": 0.3, "optimiser": "sgd"}, {"lr": 0.02, "optimiser": "adam"}
TWO_EPOCHS = {"epochs": 2, "batch_size": 2, "shuffle": True}
TRAININGS = {
    "sgd": SGD | {"steps": 5, "batch_size": 2},
    "weight decay": SGD | {"steps": 5, "batch_size": 2, "weight_decay": 0.1},
    "momentum": SGD | TWO_EPOCHS | {"momentum": 0.9},
    "dampening": SGD | TWO_EPOCHS | {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.05},
    "nesterov": SGD | TWO_EPOCHS | {"momentum": 0.8, "nesterov": True, "weight_decay": 0.05},
    "steps, momentum": SGD | TWO_EPOCHS | {"momentum": 0.5, "schedule": "step", "decay_every": 3, "decay_factor": 0.4},
    "cosine": SGD | TWO_EPOCHS | {"schedule": "cosine", "final_fraction": 0.1},
    "linear": SGD | TWO_EPOCHS | {"schedule": "linear", "final_fraction": 0.2},
    "adam": ADAM | TWO_EPOCHS,
    "adam, decay": ADAM | TWO_EPOCHS | {"weight_decay": 0.1, "betas": (0.7, 0.95), "eps": 1e-4},
    "adam, cosine": ADAM | {"epochs": 2, "batch_size": 3} | {"schedule": "cosine"},
    "adamw": ADAM | TWO_EPOCHS | {"optimiser": "adamw", "weight_decay": 0.3},
    "adamw, linear": ADAM | TWO_EPOCHS | {"optimiser": "adamw", "weight_decay": 0.3, "schedule": "linear"},
}
LABELS = [1, 0, 3, 2, 1, 0, 2, 3]


def torch_optimiser(local: LocalTraining, parameters) -> torch.optim.Optimizer:
    parameters = list(parameters)
    if local.optimiser == "sgd":
        return torch.optim.SGD(
            parameters,
            lr=local.lr,
            momentum=local.momentum,
            dampening=local.dampening,
            nesterov=local.nesterov,
            weight_decay=local.weight_decay,
        )
    kind = torch.optim.Adam if local.optimiser == "adam" else torch.optim.AdamW
    return kind(parameters, lr=local.lr, betas=local.betas, eps=local.eps, weight_decay=local.weight_decay)


def torch_schedule(local: LocalTraining, optimiser, count: int) -> torch.optim.lr_scheduler.LRScheduler:
    kinds = torch.optim.lr_scheduler
    if local.schedule == "step":
        return kinds.StepLR(optimiser, step_size=local.decay_every, gamma=local.decay_factor)
    if local.schedule == "cosine":
        return kinds.CosineAnnealingLR(optimiser, T_max=count, eta_min=local.lr * local.final_fraction)
    if local.schedule == "linear":
        return kinds.LinearLR(optimiser, 1.0, local.final_fraction, total_iters=count)
    return kinds.ConstantLR(optimiser, 1.0)


def torch_path(local: LocalTraining, model: nn.Module, batch, order) -> list[dict[str, torch.Tensor]]:
    """What torch has changed after each step."""
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimiser = torch_optimiser(local, model.parameters())
    schedule = torch_schedule(local, optimiser, len(order))
    path = []
    for chosen in order:
        optimiser.zero_grad()
        functional.cross_entropy(model(batch.inputs[list(chosen)]), batch.targets[list(chosen)]).backward()
        optimiser.step()
        schedule.step()
        path.append({name: value.detach() - before[name] for name, value in model.named_parameters()})
    return path


def leaves(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().requires_grad_() for name, value in trainable(model).items()}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)], ids=["64", "32"])
@pytest.mark.parametrize("fields", TRAININGS.values(), ids=TRAININGS)
def test_every_step_is_that_of_torch(fields, dtype, tolerance):
    local, batch = LocalTraining(**fields), batch_of(LABELS, dtype=dtype)
    order = local.order(8, generator(3))
    expected = torch_path(local, dense(dtype=dtype), batch, order)
    model = dense(dtype=dtype)
    # A constant schedule may be cut short; others depend on how many steps there are in all.
    lengths = range(1, len(order) + 1) if local.schedule == "constant" else [len(order)]
    for length in lengths:
        found = replay_local(
            model,
            leaves(model),
            batch.inputs,
            batch.targets,
            local=local,
            loss=functional.cross_entropy,
            create_graph=False,
            order=order[:length],
        )
        for name, value in expected[length - 1].items():
            torch.testing.assert_close(found[name].detach(), value, rtol=0, atol=tolerance)


@pytest.mark.parametrize("schedule", ["step", "cosine", "linear"])
def test_every_rate_is_that_of_torchs_schedule(schedule):
    local = LocalTraining(
        0.3,
        steps=7,
        schedule=schedule,
        decay_every=3 if schedule == "step" else None,
        final_fraction=0.0 if schedule == "step" else 0.2,
    )
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    torchs = torch_schedule(local, optimiser, 7)
    for factor in local.rate_factors(7):
        assert optimiser.param_groups[0]["lr"] == pytest.approx(0.3 * factor, rel=1e-12)
        optimiser.step()
        torchs.step()


@pytest.mark.parametrize("fields", TRAININGS.values(), ids=TRAININGS)
def test_the_clients_change_is_the_attackers_replay_of_its_order(fields):
    local, batch, model = LocalTraining(**fields), batch_of(LABELS), dense()
    run = run_client(model, batch, local=local, seed=4)
    assert isinstance(run.update, SharedUpdate)
    assert len(run.order) == local.count_steps(8)
    found = replay_local(
        model, leaves(model), batch.inputs, batch.targets, local=local, loss=functional.cross_entropy, order=run.order
    )
    for name, value in run.update.tensors.items():
        torch.testing.assert_close(found[name].detach(), value, rtol=1e-12, atol=1e-14)


TINY = {
    "momentum": SGD | {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "adam": ADAM | {"weight_decay": 0.1, "eps": 1e-3},
    "adamw": ADAM | {"optimiser": "adamw", "weight_decay": 0.1, "eps": 1e-3, "schedule": "cosine"},
}


@pytest.mark.parametrize("fields", TINY.values(), ids=TINY)
def test_the_replay_can_be_differentiated_by_the_inputs(fields):
    local = LocalTraining(**fields, epochs=2, batch_size=2, shuffle=True)
    order = local.order(4, generator(1))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    inputs = torch.rand(4, 3, generator=generator(0), dtype=torch.float64).requires_grad_()
    targets = torch.tensor([0, 1, 2, 1])

    def change(values: torch.Tensor) -> torch.Tensor:
        found = replay_local(
            model, leaves(model), values, targets, local=local, loss=functional.cross_entropy, order=order
        )
        return torch.cat([value.reshape(-1) for value in found.values()])

    assert torch.autograd.gradcheck(change, (inputs,), atol=1e-6)


def test_units_that_are_never_active_leave_adams_derivative_defined():
    first = nn.Linear(3, 4)
    with torch.no_grad():
        first.bias[0] = -100.0
    model = nn.Sequential(first, nn.ReLU(), nn.Linear(4, 2)).double()
    inputs = torch.rand(2, 3, generator=generator(0), dtype=torch.float64).requires_grad_()
    found = replay_local(
        model,
        leaves(model),
        inputs,
        torch.tensor([0, 1]),
        local=LocalTraining(0.01, steps=2, optimiser="adam"),
        loss=functional.cross_entropy,
    )
    assert not found["0.weight"][0].any()
    (slope,) = torch.autograd.grad(torch.stack([value.sum() for value in found.values()]).sum(), inputs)
    assert bool(torch.isfinite(slope).all())
