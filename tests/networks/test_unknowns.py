"""Tensors of a network that the server does not know: searched for beside the pictures, by the plain route."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from leakscope.attacks.idlg import idlg
from leakscope.matching.distances import SquaredL2
from leakscope.matching.problem import PlainRoute
from leakscope.matching.replays import OneGradient
from leakscope.matching.routes import choose_route
from leakscope.metrics import score
from leakscope.networks import UnknownTensors, start_unknowns, take_examples
from leakscope.observation.observe import observe
from leakscope.registry import get_attack
from leakscope.rng import generator, normal
from leakscope.steps import replay_gradient, replay_local, trainable
from leakscope.types import LocalTraining
from tiny import batch_of, flat, shared

WIDTH = 24
GAIN = torch.linspace(-0.5, 2.0, WIDTH, dtype=torch.float64)


class Shifted(UnknownTensors):
    """x · gain + drift, with one gain for all examples and a drift for each."""

    of_examples = frozenset({"drift"})
    gain: torch.Tensor
    drift: torch.Tensor

    def __init__(self, gain: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("gain", gain.clone())
        self.register_buffer("drift", torch.zeros(1, WIDTH, dtype=torch.float64))

    def forward(self, x):
        return self.gain * x + self.drift

    def start_unknowns(self, examples, rng):
        return {"gain": torch.ones_like(self.gain), "drift": 0.1 * normal((examples, WIDTH), rng, like=self.drift)}


def network(gain=None) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Flatten(), nn.Linear(36, WIDTH), nn.Sigmoid(), Shifted(torch.ones(WIDTH)), nn.Linear(WIDTH, 4)]
        model = nn.Sequential(*layers).double()
    if gain is not None:
        dict(model.named_buffers())["3.gain"].copy_(gain)
    return model


def observed(labels=(2,)):
    """A client with gains of its own, and the server's view of it."""
    batch = batch_of(list(labels))
    return observe(network(), shared(network(GAIN), batch), scenario="A", truth=batch), batch


def test_they_have_the_full_names_of_buffers():
    start = start_unknowns(network(), 3, generator(0))
    assert {name: tuple(value.shape) for name, value in start.items()} == {"3.gain": (WIDTH,), "3.drift": (3, WIDTH)}
    assert start_unknowns(Shifted(GAIN), 1, generator(0)).keys() == {"gain", "drift"}


def test_only_rows_of_examples_are_taken():
    drift = torch.arange(12.0).reshape(3, 4)
    taken = take_examples(network(), {"3.gain": GAIN, "3.drift": drift}, [2, 0])
    assert torch.equal(taken["3.drift"], drift[[2, 0]])
    assert torch.equal(taken["3.gain"], GAIN)


def test_what_is_given_takes_the_place_of_the_buffer_and_gets_no_gradient():
    batch, model = batch_of([1, 3]), network()
    parameters = {name: value.detach().requires_grad_() for name, value in trainable(model).items()}
    for given, other in (({"3.gain": GAIN}, network(GAIN)), ({}, network())):
        found = replay_gradient(
            model, parameters, batch.inputs, batch.targets, loss=nn.functional.cross_entropy, given=given
        )
        assert found.keys() == parameters.keys()
        torch.testing.assert_close(flat(found), flat(shared(other, batch).tensors))
    assert torch.equal(model[3].gain, torch.ones(WIDTH).double())


def test_local_steps_use_the_rows_of_their_examples():
    batch, model = batch_of([1, 3]), network()
    drift = normal((2, WIDTH), generator(1), like=GAIN)
    local = LocalTraining(lr=0.1, steps=2, batch_size=1)
    options = {"local": local, "loss": nn.functional.cross_entropy}
    parameters = {name: value.detach().requires_grad_() for name, value in trainable(model).items()}
    found = replay_local(model, parameters, batch.inputs, batch.targets, given={"3.drift": drift}, **options)
    current = parameters
    for row in range(2):
        model[3].drift = drift[[row]]
        x, y = batch.inputs[[row]], batch.targets[[row]]
        step = replay_local(model, current, x, y, **{**options, "local": replace(local, steps=1)})
        current = {name: value + step[name] for name, value in current.items()}
    expected = {name: value - parameters[name] for name, value in current.items()}
    torch.testing.assert_close(flat(found), flat(expected))


def test_the_distance_is_differentiated_by_them():
    seen, batch = observed()
    route = PlainRoute(seen, OneGradient(), SquaredL2())
    goal = {name: value[None] for name, value in seen.update.tensors.items()}
    given = {
        "3.gain": normal((2, WIDTH), generator(2), like=GAIN),
        "3.drift": normal((2, 1, WIDTH), generator(3), like=GAIN),
    }
    images, targets = batch.inputs.expand(2, *batch.inputs.shape), batch.targets.expand(2, 1)
    goals = {name: value.expand(2, *value.shape[1:]) for name, value in goal.items()}
    match = route(images, targets, goals, given)
    torch.testing.assert_close(match.distance, route.measure(images, targets, goals, given))
    for name, value in given.items():
        for place in range(4):
            moved = {**given, name: value.clone()}
            moved[name][..., place] += 1e-6
            change = (route.measure(images, targets, goals, moved) - match.distance) / 1e-6
            torch.testing.assert_close(match.given[name][..., place].reshape(2), change, rtol=1e-4, atol=1e-6)


def test_at_the_truth_and_the_true_values_nothing_is_left():
    seen, batch = observed()
    attack = idlg(steps=1)
    found = attack.reconstruct(seen, diagnosing=False)
    truth = replace(found, inputs=batch.inputs, targets=batch.targets, unknowns={"3.gain": GAIN})
    assert attack.evaluate(seen, truth) < 1e-20
    assert attack.evaluate(seen, replace(truth, unknowns={})) > 1e-3


def knowing(attack):
    return attack.revised(lambda recipe: replace(recipe, unknowns=True))


def test_a_search_for_them_finds_the_picture_too():
    seen, batch = observed()
    naive = idlg(steps=40)
    blind, found = (attack.reconstruct(seen, seed=1, diagnosing=False) for attack in (naive, knowing(naive)))
    assert not blind.unknowns
    assert knowing(naive).evaluate(seen, found) == found.loss
    assert any("unknown tensors" in note for note in found.notes)
    assert float(score(found, batch).psnr) > float(score(blind, batch).psnr) + 20
    assert found.fit is not None
    assert blind.fit is not None
    assert found.fit.explained > 0.99 > blind.fit.explained


def test_every_example_has_a_row():
    seen, _batch = observed((1, 3))
    attack = knowing(get_attack("dlg-adam", steps=3))
    found = attack.reconstruct(seen, seed=1, diagnosing=False)
    assert found.unknowns["3.drift"].shape == (2, WIDTH)
    assert attack.evaluate(seen, found) == found.loss


def test_the_fast_route_steps_aside():
    seen, batch = observed()
    plain = replace(seen, model=nn.Sequential(nn.Flatten(), nn.Linear(36, 4)).double())
    goal = {name: torch.zeros(1, *value.shape).double() for name, value in plain.model.named_parameters()}
    options = {"images": batch.inputs[None], "targets": batch.targets[None], "target": goal}
    usual, _ = choose_route(plain, OneGradient(), SquaredL2(), **options)
    route, note = choose_route(plain, OneGradient(), SquaredL2(), **options, unknown=True)
    assert not isinstance(usual, PlainRoute)
    assert isinstance(route, PlainRoute)
    assert "unknown tensors" in note


def test_victims_in_lockstep_have_their_own():
    batches = [batch_of([2]), batch_of([1], seed=5)]
    gains = [GAIN, GAIN.flip(0)]
    frozen = observe(network(), shared(network(gains[0]), batches[0]), scenario="A", truth=batches[0])
    seen = [frozen, replace(frozen, update=shared(network(gains[1]), batches[1]), targets=batches[1].targets)]
    attack = knowing(idlg(steps=40))
    for found, batch in zip(attack.reconstruct(seen, seed=1, diagnosing=False), batches, strict=True):
        assert float(score(found, batch).psnr) > 25
