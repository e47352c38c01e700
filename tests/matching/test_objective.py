from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from leakscope.matching.distances import L1, Clipped, Cosine, Denoised, Masked, SquaredL2
from leakscope.matching.problem import PlainRoute
from leakscope.matching.replays import AsKnown, OneGradient
from leakscope.matching.routes import choose_route
from leakscope.rng import generator, uniform
from leakscope.types import LocalTraining
from tiny import batch_of, convolutional, dense, seen_of

DISTANCES = [SquaredL2(), L1(), Cosine(), Masked(Cosine()), Clipped(SquaredL2()), Denoised(Cosine(), 1e-6)]


def setting(model, labels, *, groups=2, soft=False, **extra):
    batch = batch_of(labels)
    seen = seen_of(model, batch, **extra)
    images = uniform((groups, *batch.inputs.shape), generator(5), like=batch.inputs)
    targets = batch.targets.expand(groups, -1)
    if soft:
        targets = uniform((groups, len(labels), 4), generator(6), like=images).softmax(-1)
    target = {name: value.expand(groups, *value.shape) for name, value in AsKnown().target(seen).items()}
    return seen, {"images": images, "targets": targets, "target": target}


@pytest.mark.parametrize("distance", DISTANCES, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft labels"])
@pytest.mark.parametrize("make", [dense, convolutional], ids=["dense", "convolutional"])
def test_the_chosen_route_agrees_with_plain_double_backward(make, distance, soft):
    seen, where = setting(make(), [1, 3], soft=soft)
    route, note = choose_route(seen, OneGradient(), distance, **where)
    assert note.startswith("structured")
    found = route(where["images"], where["targets"], where["target"])
    exact = PlainRoute(seen, OneGradient(), distance)(where["images"], where["targets"], where["target"])
    torch.testing.assert_close(found.distance, exact.distance, rtol=1e-6, atol=1e-10)
    torch.testing.assert_close(found.images, exact.images, rtol=1e-3, atol=1e-3 * float(exact.images.abs().max()))
    assert (found.targets is None) is (not soft)


def test_plain_gradients_are_those_of_finite_differences():
    seen, where = setting(dense(), [1, 3], groups=1, soft=True)
    plain = PlainRoute(seen, OneGradient(), Cosine())
    found = plain(where["images"], where["targets"], where["target"])
    assert found.targets is not None
    for name, gradient in (("images", found.images), ("targets", found.targets)):
        direction = uniform(tuple(gradient.shape), generator(7), like=gradient) - 0.5
        ends = [plain(**{**where, name: where[name] + side * 1e-5 * direction}).distance for side in (1, -1)]
        torch.testing.assert_close((gradient * direction).sum(), (ends[0] - ends[1])[0] / 2e-5, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("model", "extra", "reason"),
    [
        (dense(), {"local": LocalTraining(lr=0.1, steps=2, momentum=0.9)}, "local training with momentum has no rules"),
        (dense(), {"local": LocalTraining(lr=0.1, steps=2, weight_decay=0.1)}, "with weight decay has no rules"),
        (dense(), {"local": LocalTraining(lr=0.1, steps=2, optimiser="adam")}, "with adam has no rules"),
        (nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.LayerNorm(8), nn.Linear(8, 4)).double(), {}, "plain double"),
    ],
    ids=["momentum", "weight decay", "adam", "unknown layer"],
)
def test_what_cannot_be_taken_apart_goes_the_plain_way_with_a_reason(model, extra, reason):
    seen, where = setting(model, [1, 3], **extra)
    route, note = choose_route(seen, AsKnown(), SquaredL2(), **where)
    assert isinstance(route, PlainRoute)
    assert reason in note


def test_batch_norm_in_training_mode_takes_the_fast_route_and_every_group_has_its_own_statistics():
    model = convolutional(norm=True).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    seen, where = setting(model, [1, 3, 0], groups=3)
    route, note = choose_route(seen, AsKnown(), SquaredL2(), **where)
    assert note.startswith("structured")
    found, exact = (one(**where) for one in (route, PlainRoute(seen, AsKnown(), SquaredL2())))
    torch.testing.assert_close(found.distance, exact.distance, rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(found.images, exact.images, rtol=1e-3, atol=1e-3 * float(exact.images.abs().max()))
    assert all(torch.equal(value, before[name]) for name, value in seen.model.state_dict().items())


def squared(output, targets):
    return functional.mse_loss(output, functional.one_hot(targets, 4).to(output))


def test_the_loss_of_the_observation_is_the_one_that_is_replayed():
    seen, where = setting(dense(), [1, 3])
    usual, other = (
        PlainRoute(replace(seen, loss=loss), OneGradient(), SquaredL2())(**where).distance
        for loss in (seen.loss, squared)
    )
    assert not torch.allclose(usual, other)


def test_the_model_is_left_as_it_was():
    seen, where = setting(convolutional(norm=True).eval(), [1, 3])
    before = {name: value.clone() for name, value in seen.model.state_dict().items()}
    route, _ = choose_route(seen, OneGradient(), Cosine(), **where)
    route(**where)
    PlainRoute(seen, OneGradient(), Cosine())(**where)
    assert all(torch.equal(value, before[name]) for name, value in seen.model.state_dict().items())
    assert all(parameter.grad is None for parameter in seen.model.parameters())
