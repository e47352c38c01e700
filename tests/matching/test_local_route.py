"""Simulated local steps on the fast route: what takes it, what does not and why, and how it is checked."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from leakscope import get_attack
from leakscope.client import run_client
from leakscope.fastgrad import LocalProgram
from leakscope.matching import problem, routes
from leakscope.matching.distances import Cosine, SquaredL2
from leakscope.matching.problem import PlainRoute, lockstep_chunks
from leakscope.matching.replays import AsKnown, LocalSteps, OneGradient
from leakscope.matching.routes import MODES, Guard, StructuredRoute
from leakscope.matching.trust import CheckPoint, measure_gap
from leakscope.metrics import score
from leakscope.observation.observe import observe
from leakscope.rng import generator, normal_like, uniform
from leakscope.types import LocalTraining
from tiny import batch_of, convolutional, dense, seen_of

LIMITS = {"tangents": 1e-8, "differences": 1e-4}
TRAININGS = {
    "one by one": LocalTraining(lr=0.5, steps=3, batch_size=1),
    "epochs of two": LocalTraining(lr=0.5, epochs=2, batch_size=2),
    "falling rate": LocalTraining(lr=0.5, steps=4, batch_size=2, schedule="linear", final_fraction=0.1),
}


def place_of(seen, count, *, groups=2, soft=False) -> CheckPoint:
    images = uniform((groups, count, *seen.input_shape), generator(5), like=torch.empty(0, dtype=seen.dtype))
    targets = torch.arange(count).remainder(4).expand(groups, -1)
    if soft:
        targets = uniform((groups, count, 4), generator(6), like=images).softmax(-1)
    goal = LocalSteps().target(seen)
    return CheckPoint(images, targets, {name: value.expand(groups, *value.shape) for name, value in goal.items()})


@pytest.fixture(autouse=True)
def _no_network_is_too_small(monkeypatch):
    monkeypatch.setattr(routes, "FEWEST_FOR_LOCAL_STEPS", 0)


def guard_at(seen, place, *, mode=None, distance=None) -> Guard:
    guard = Guard(seen, LocalSteps(), distance or Cosine())
    guard.choose(place, range(place.groups), modes=MODES if mode is None else (mode,))
    return guard


def residual() -> nn.Module:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.inner = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
            self.norm, self.leave = nn.BatchNorm2d(3), nn.Linear(27, 4)

        def forward(self, x):
            y = self.enter(x)
            y = torch.relu(y + self.norm(self.inner(y)))
            return self.leave(nn.functional.max_pool2d(y, 2).flatten(1))

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Residual().double()


NETWORKS = {
    "dense": lambda: dense().eval(),
    "stored statistics": lambda: convolutional(norm=True).eval(),
    "residual, pooled": lambda: residual().eval(),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("local", TRAININGS.values(), ids=TRAININGS)
@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft labels"])
def test_the_route_agrees_with_double_backward_through_the_clients_own_loop(make, local, soft, mode):
    seen = seen_of(make(), batch_of([1, 3, 0, 2]), local=local)
    place = place_of(seen, 4, soft=soft)
    guard = guard_at(seen, place, mode=mode, distance=SquaredL2())
    assert isinstance(guard.route, StructuredRoute)
    assert guard.note.startswith(f"structured, {mode}: within")
    assert "local steps are simulated" in guard.note
    for group in range(2):
        one = place.group(group)
        gap = measure_gap(one.evaluate(guard.route), one.evaluate(PlainRoute(seen, LocalSteps(), SquaredL2())))
        assert gap.within(LIMITS[mode])
    found = place.evaluate(guard.route)
    torch.testing.assert_close(guard.route.measure(place.images, place.targets, place.target), found.distance)


@pytest.mark.parametrize("mode", MODES)
def test_batch_norm_in_training_mode_takes_the_statistics_of_every_step(mode):
    model = convolutional(norm=True).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    seen = seen_of(model, batch_of([1, 3, 0, 2]), local=LocalTraining(lr=0.5, steps=3, batch_size=2))
    guard = guard_at(seen, place_of(seen, 4), mode=mode)
    assert guard.note.startswith(f"structured, {mode}")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"momentum": 0.9}, "momentum"),
        ({"weight_decay": 0.01}, "weight decay"),
        ({"optimiser": "adam"}, "adam"),
        ({"optimiser": "adamw", "weight_decay": 0.01}, "adamw"),
    ],
)
def test_other_optimisers_go_the_plain_way_with_their_name(options, reason):
    seen = seen_of(dense(), batch_of([1, 3]), local=LocalTraining(lr=0.1, steps=2, **options))
    guard = guard_at(seen, place_of(seen, 2))
    assert not guard.is_fast
    expected = f"plain double backward: local training with {reason} has no rules; local steps are simulated"
    assert guard.note == expected


def test_one_group_of_a_small_network_goes_the_plain_way_and_several_do_not(monkeypatch):
    seen = seen_of(dense(), batch_of([1, 3]), local=LocalTraining(lr=0.1, steps=2))
    parameters = problem.count_parameters(seen)
    for fewest, groups, fast in ((parameters, 1, True), (parameters + 1, 1, False), (parameters + 1, 2, True)):
        monkeypatch.setattr(routes, "FEWEST_FOR_LOCAL_STEPS", fewest)
        guard = guard_at(seen, place_of(seen, 2, groups=groups))
        assert guard.is_fast is fast
        assert ("small" in guard.note) is not fast


def test_one_gradient_of_a_small_network_keeps_its_rules(monkeypatch):
    monkeypatch.setattr(routes, "FEWEST_FOR_LOCAL_STEPS", 10**9)
    seen = seen_of(dense(), batch_of([1, 3]))
    goal = {name: value[None] for name, value in OneGradient().target(seen).items()}
    guard = Guard(seen, OneGradient(), Cosine())
    guard.choose(CheckPoint(torch.rand(1, 2, *seen.input_shape).double(), torch.tensor([[1, 3]]), goal), [0])
    assert guard.is_fast


def test_a_layer_without_a_rule_is_named_here_as_well():
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.LayerNorm(8), nn.Linear(8, 4)).double()
    seen = seen_of(model, batch_of([1, 3]), local=LocalTraining(lr=0.1, steps=2))
    assert "LayerNorm" in guard_at(seen, place_of(seen, 2)).note


def test_the_order_of_the_clients_steps_is_followed_where_it_is_known():
    local = LocalTraining(lr=0.5, epochs=1, batch_size=1, shuffle=True)
    model, batch = dense(), batch_of([1, 3, 0, 2])
    run = run_client(model, batch, local=local, seed=3)
    seen = observe(model, run.update, scenario="A", truth=batch, order=run.order)
    assert seen.order != local.order(4)
    place = CheckPoint(batch.inputs[None], batch.targets[None], {k: v[None] for k, v in AsKnown().target(seen).items()})
    moved = replace(place, images=place.images + 0.1)
    route = guard_at(seen, moved, distance=SquaredL2()).route
    assert isinstance(route, StructuredRoute)
    assert isinstance(route.network, LocalProgram)
    assert route.network.order == seen.order
    other = replace(route, network=replace(route.network, order=local.order(4)))
    assert float(place.evaluate(route).distance) < 1e-20
    assert float(place.evaluate(other).distance) > 1e-6


class Turned:
    """Local training whose pullback is off by two percent."""

    def __init__(self, *parts) -> None:
        self.inner = LocalProgram(*parts)
        self.names = self.inner.names

    def gradients(self, inputs, targets):
        return self.inner.gradients(inputs, targets)

    def pullback(self, first, direction):
        to_inputs, to_targets = self.inner.pullback(first, direction)
        noise = normal_like(to_inputs, generator(9))
        return to_inputs + 0.02 * to_inputs.norm() / noise.norm() * noise, to_targets


def test_a_wrong_route_is_refused(monkeypatch):
    monkeypatch.setattr(routes, "LocalProgram", Turned)
    seen = seen_of(dense(), batch_of([1, 3]), local=LocalTraining(lr=0.5, steps=2))
    guard = guard_at(seen, place_of(seen, 2))
    assert not guard.is_fast
    assert "disagreed" in guard.note


def test_all_examples_are_compared_because_later_steps_depend_on_earlier_ones():
    seen = seen_of(dense(), batch_of([0, 1, 2, 3, 0, 1]), local=LocalTraining(lr=0.5, epochs=1, batch_size=1))
    place = place_of(seen, 6)
    guard = guard_at(seen, place)
    assert guard.is_fast
    assert guard._referee.sample(place) is place


def test_groups_run_in_turns_where_their_steps_do_not_fit_together(monkeypatch):
    seen = seen_of(dense(), batch_of([1, 3]), local=LocalTraining(lr=0.5, steps=2))
    place = place_of(seen, 2, groups=3, soft=True)
    together = guard_at(seen, place, mode="tangents").route
    monkeypatch.setattr(problem, "LOCKSTEP_BYTES", 2 * problem.bytes_per_group(seen, 2, LocalSteps()))
    apart = guard_at(seen, place, mode="tangents").route
    assert isinstance(apart, StructuredRoute)
    assert apart.together == 2
    for left, right in zip(*(vars(place.evaluate(route)).values() for route in (together, apart)), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-14)
    measured = [route.measure(place.images, place.targets, place.target) for route in (together, apart)]
    torch.testing.assert_close(*measured, rtol=1e-12, atol=1e-14)


def test_every_simulated_step_takes_its_room_in_lockstep(monkeypatch):
    seen = [seen_of(dense(), batch_of([1]), local=LocalTraining(lr=0.5, steps=20))] * 4
    monkeypatch.setattr(problem, "LOCKSTEP_BYTES", 4 * problem.bytes_per_group(seen[0], 1, OneGradient()))
    assert lockstep_chunks(seen, [1] * 4, 1, replay=OneGradient()) == [[0, 1, 2, 3]]
    assert lockstep_chunks(seen, [1] * 4, 1, replay=LocalSteps()) == [[0], [1], [2], [3]]
    fewer = seen_of(dense(), batch_of([1]), local=LocalTraining(lr=0.5, steps=19))
    sizes = [problem.bytes_per_group(one, 1, LocalSteps()) for one in (seen[0], fewer)]
    # Weights and gradients of one step, and the activations of its example.
    assert sizes[0] - sizes[1] == 8 * (2 * problem.count_parameters(fewer) + 600 * 36)


def test_an_attack_finds_its_picture_through_local_steps():
    batch = batch_of([1, 3])
    seen = seen_of(dense(), batch, local=LocalTraining(lr=0.5, steps=4, batch_size=1))
    found = get_attack("inverting-gradients", replay="simulate", steps=120).reconstruct(seen, seed=0)
    assert any(note.startswith("structured") and "local steps are simulated" in note for note in found.notes)
    assert float(score(found, batch).psnr.min()) > 25
