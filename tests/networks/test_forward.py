"""Running a network once: what is seen of its layers, and that nothing of it stays."""

from __future__ import annotations

import contextlib

import torch
from torch import nn

from leakscope.networks import record_inputs, run
from tiny import convolutional, dense

IMAGES = torch.rand(3, 1, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_a_pass_leaves_buffers_hooks_and_parameters_as_they_were():
    model = convolutional(norm=True).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    run(model, IMAGES, layers=["1"], before=lambda *_: None, after=lambda *_: None, seed=3)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_hooks_come_off_when_the_pass_fails():
    model = dense()
    with contextlib.suppress(RuntimeError):
        run(model, IMAGES[:, :, :3], layers=["1"], before=lambda *_: None)
    assert not model[1]._forward_pre_hooks


def test_given_parameters_take_the_place_of_the_models_own():
    model, other = dense(seed=0), dense(seed=1)
    assert torch.equal(run(model, IMAGES, parameters=dict(other.named_parameters())), other(IMAGES))
    partly = run(model, IMAGES, parameters={"3.bias": model[3].bias + 1})
    torch.testing.assert_close(partly, model(IMAGES) + 1)


def test_layers_are_seen_by_name_and_may_be_replaced():
    model, seen = dense(), []
    replaced = torch.zeros(3, 24, dtype=torch.float64)
    output = run(model, IMAGES, layers=["1", "2"], after=lambda name, value: seen.append(name) or replaced)
    assert seen == ["1", "2"]
    torch.testing.assert_close(output, model[3](replaced))


def test_a_pass_is_differentiable_unless_told_otherwise():
    model, images = dense(), IMAGES.clone().requires_grad_()
    (slope,) = torch.autograd.grad(run(model, images).sum(), images)
    assert bool(slope.any())
    with torch.no_grad():
        assert not run(model, images).requires_grad


def test_a_seed_keeps_the_global_generator_and_fixes_the_draw():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5)).train()
    state = torch.random.get_rng_state()
    first, again, other = (run(model, IMAGES, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(state, torch.random.get_rng_state())
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.late, self.early = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, values):
        return self.late(self.early(self.early(values)))


def test_what_layers_receive_comes_in_the_order_of_execution():
    model, values = Twice(), torch.rand(2, 4)
    found = record_inputs(model, values, ["late", "early"])
    assert list(found) == ["early", "late"]
    torch.testing.assert_close(found["early"], [values, model.early(values)])
    assert len(found["late"]) == 1
    assert not found["late"][0].requires_grad
