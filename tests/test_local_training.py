"""What a description of local training means, and which ones are refused."""

from __future__ import annotations

import json
import math

import pytest
import torch

from leakscope.errors import UsageError
from leakscope.rng import generator
from leakscope.types import LocalTraining


@pytest.mark.parametrize("wrong", [{"lr": 0.0}, {"lr": -1.0}, {"lr": float("nan")}, {"steps": 0}, {"batch_size": 0}])
def test_what_cannot_train_is_refused(wrong):
    with pytest.raises(UsageError, match="needs lr > 0, steps ≥ 1 and batch_size ≥ 1, got"):
        LocalTraining(**{"lr": 0.1, **wrong})


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"steps": 2, "epochs": 2}, "steps or epochs, got steps=2 and epochs=2; leave one out"),
        ({"epochs": 0}, "epochs ≥ 1"),
        ({"optimiser": "adm"}, r"unknown optimiser 'adm'\. Did you mean 'adam'\?"),
        ({"schedule": "cosin"}, r"unknown schedule 'cosin'\. Did you mean 'cosine'\?"),
        ({"optimiser": "adam", "momentum": 0.9}, "momentum has no effect with optimiser='adam', got momentum=0.9"),
        ({"optimiser": "adamw", "nesterov": True}, "nesterov has no effect with optimiser='adamw'"),
        ({"betas": (0.5, 0.9)}, "betas has no effect with optimiser='sgd'"),
        ({"eps": 1e-3}, "eps has no effect with optimiser='sgd'"),
        ({"nesterov": True}, "no effect without momentum"),
        ({"dampening": 0.1}, "no effect without momentum"),
        ({"momentum": 0.9, "nesterov": True, "dampening": 0.1}, "nesterov needs dampening 0"),
        ({"momentum": 1.0}, "0 ≤ momentum < 1, got 1.0"),
        ({"optimiser": "adam", "betas": (0.9, 1.0)}, "0 ≤ betas < 1, got 0.9, 1.0"),
        ({"optimiser": "adam", "betas": (0.9,)}, "two betas"),
        ({"optimiser": "adam", "eps": 0.0}, "eps > 0"),
        ({"weight_decay": -1e-3}, "weight_decay ≥ 0"),
        ({"weight_decay": math.inf}, "weight_decay ≥ 0"),
        ({"steps": 3, "drop_last": True}, "drop_last has no effect on steps in order"),
        ({"schedule": "step"}, "decay_every belongs to schedule='step'"),
        ({"decay_every": 2}, "decay_every belongs to schedule='step'"),
        ({"schedule": "step", "decay_every": 0}, "decay_every ≥ 1"),
        ({"schedule": "step", "decay_every": 1, "decay_factor": 2.0}, "decay_factor ≤ 1"),
        ({"schedule": "step", "decay_every": 1, "final_fraction": 0.5}, "final_fraction has no effect"),
        ({"schedule": "cosine", "decay_factor": 0.5}, "decay_factor has no effect with schedule='cosine'"),
        ({"schedule": "cosine", "final_fraction": 1.5}, "final_fraction ≤ 1"),
        ({"final_fraction": 0.5}, "final_fraction has no effect with schedule='constant'"),
    ],
)
def test_combinations_that_mean_nothing_are_refused(fields, match):
    with pytest.raises(UsageError, match=match):
        LocalTraining(0.1, **fields)


def test_rate_steps_and_batch_size_come_first_and_one_step_is_the_default():
    assert LocalTraining(0.1, 4, 2) == LocalTraining(lr=0.1, steps=4, batch_size=2)
    assert LocalTraining(0.1).steps == 1
    assert LocalTraining(0.1, epochs=3).steps is None
    assert LocalTraining(0.1, optimiser="adam", betas=[0.9, 0.99]) == LocalTraining(
        0.1, optimiser="adam", betas=(0.9, 0.99)
    )


def test_steps_in_order_wrap_round_and_never_repeat_an_example_within_a_step():
    assert LocalTraining(0.1, 4, 2).order(3) == ((0, 1), (2, 0), (1, 2), (0, 1))
    assert LocalTraining(0.1, 2, 8).order(3) == ((0, 1, 2), (2, 0, 1))


def test_epochs_pass_over_the_examples_and_end_with_a_smaller_batch():
    assert LocalTraining(0.1, epochs=2, batch_size=2).order(5) == ((0, 1), (2, 3), (4,)) * 2
    dropped = LocalTraining(0.1, epochs=2, batch_size=2, drop_last=True)
    assert dropped.order(5) == ((0, 1), (2, 3)) * 2
    assert (dropped.count_steps(5), dropped.count_steps(4)) == (4, 4)
    assert LocalTraining(0.1, epochs=2, batch_size=2).count_steps(5) == 6
    with pytest.raises(UsageError, match="no batch of 8 out of 5 examples; use a smaller batch_size"):
        LocalTraining(0.1, epochs=1, batch_size=8, drop_last=True).count_steps(5)


def test_shuffling_deals_every_example_once_per_pass_in_another_order_each_time():
    local = LocalTraining(0.1, epochs=3, batch_size=2, shuffle=True)
    order = local.order(8, generator(0))
    passes = [sum(order[start : start + 4], ()) for start in (0, 4, 8)]
    assert all(sorted(one) == list(range(8)) for one in passes)
    assert len({*passes, tuple(range(8))}) == 4
    assert order == local.order(8, generator(0)) != local.order(8, generator(1))
    # An attacker who was not told the order has only that of the examples.
    assert local.order(8) == ((0, 1), (2, 3), (4, 5), (6, 7)) * 3


def test_shuffled_steps_stop_in_the_middle_of_a_pass():
    order = LocalTraining(0.1, steps=5, batch_size=2, shuffle=True).order(5, generator(2))
    assert [len(step) for step in order] == [2, 2, 1, 2, 2]
    assert sorted(sum(order[:3], ())) == list(range(5))


def test_one_step_is_known_only_of_a_known_number_of_examples():
    assert LocalTraining(0.1).is_one_step(None)
    assert not LocalTraining(0.1, steps=2).is_one_step(1)
    epoch = LocalTraining(0.1, epochs=1, batch_size=4)
    assert [epoch.is_one_step(count) for count in (None, 4, 5)] == [False, True, False]


SGDS = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "dampened": {"momentum": 0.9, "dampening": 0.4},
    "nesterov": {"momentum": 0.8, "nesterov": True},
    "steps": {"schedule": "step", "decay_every": 2, "decay_factor": 0.5},
    "cosine, momentum": {"schedule": "cosine", "final_fraction": 0.1, "momentum": 0.9},
    "linear": {"schedule": "linear"},
}


@pytest.mark.parametrize("fields", SGDS.values(), ids=SGDS)
def test_the_total_rate_is_what_torch_moves_a_weight_of_constant_gradient(fields):
    local = LocalTraining(0.3, steps=6, **fields)
    weight = torch.zeros((), dtype=torch.float64, requires_grad=True)
    options = {name: fields[name] for name in ("momentum", "dampening", "nesterov") if name in fields}
    optimiser = torch.optim.SGD([weight], lr=0.3, **options)
    for factor in local.rate_factors(6):
        optimiser.param_groups[0]["lr"] = 0.3 * factor
        weight.grad = torch.ones_like(weight)
        optimiser.step()
    assert local.total_rate(6) == pytest.approx(-weight.item(), rel=1e-12)


def test_the_total_rate_of_plain_sgd_is_rate_times_steps_to_the_last_bit():
    for lr in (0.1, 1e-4, 0.3, 0.7):
        for steps in range(1, 40):
            assert LocalTraining(lr, steps).total_rate(steps) == lr * steps


def test_settings_leave_defaults_out_and_build_the_same_value_again():
    assert LocalTraining(0.1).settings() == {"lr": 0.1, "steps": 1, "batch_size": 1}
    rich = LocalTraining(
        0.1,
        epochs=2,
        batch_size=4,
        optimiser="adamw",
        betas=(0.8, 0.99),
        weight_decay=0.01,
        shuffle=True,
        schedule="cosine",
        final_fraction=0.1,
    )
    assert LocalTraining(**json.loads(json.dumps(rich.settings()))) == rich
    assert "steps" not in rich.settings()
