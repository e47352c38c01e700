"""Which layers a search compares: measured without the truth, and never so few that the input could not be told."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import leakscope as ls
from leakscope.attacks.inverting_gradients import inverting_gradients
from leakscope.errors import UsageError
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.steadiness import SteadyLayers, measure_layers
from leakscope.registry import defence_from_spec
from tiny import batch_of, dense, shared

SHAPE = (1, 16, 16)
BEFORE, BEHIND = (0, 2, 4, 6), (9, 12)


def pooled(*, hidden: int = 40, seed: int = 0) -> nn.Sequential:
    """Four convolutions before a maximum over large windows, two layers behind it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        front = [[nn.Conv2d(before, hidden, 3, padding=1), nn.ReLU()] for before in (1, hidden, hidden, hidden)]
        rear = [nn.Conv2d(hidden, hidden, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * hidden, 4)]
        return nn.Sequential(*(layer for pair in front for layer in pair), nn.MaxPool2d(4), *rear).double()


def names_of(*places):
    return tuple(f"{at}.{name}" for at in places for name in ("weight", "bias"))


def seen_of(model, *, labels=(1,), shape=SHAPE, **options):
    batch = batch_of(list(labels), shape=shape)
    return ls.observe(model, shared(model, batch), scenario="B", truth=batch, **options)


def knowing(spec) -> GradientMatching:
    """Inverting Gradients by someone who knows of a defence."""
    attack = defence_from_spec(spec).adapt(inverting_gradients())
    assert isinstance(attack, GradientMatching)
    return attack


def error_signals(model, inputs, direction):
    """By hand: the derivative of the outputs along `direction`, at the output of every layer with weights."""
    outputs, value = [], inputs
    for layer in model:
        value = layer(value)
        if list(layer.parameters()):
            outputs.append(value)
    return torch.autograd.grad((value * direction).sum(), outputs)


def test_steadiness_is_the_cosine_of_two_error_signals(monkeypatch):
    model = pooled()
    seen = seen_of(model)
    pictures = batch_of([0, 0], shape=SHAPE, seed=5).inputs
    direction = torch.randn(4, dtype=torch.float64)
    monkeypatch.setattr("leakscope.matching.steadiness.unrelated_inputs", lambda *given, **told: [pictures.clone()])
    monkeypatch.setattr("leakscope.rng.normal", lambda shape, rng, *, like: direction)
    found = measure_layers(seen)
    expected = [
        float(nn.functional.cosine_similarity(*signal.flatten(1), dim=0))
        for signal in error_signals(model, pictures, direction)
    ]
    assert [one.steadiness for one in found] == pytest.approx(expected, abs=1e-9)
    assert [one.received for one in found] == [256, 40 * 256, 40 * 256, 40 * 256, 40 * 16, 40 * 16]
    assert [one.parameters for one in found] == [names_of(at) for at in (*BEFORE, *BEHIND)]


class Folded(nn.Module):
    """Linear, then its size without its sign."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4).double()
        nn.init.zeros_(self.layer.bias)

    def forward(self, x):
        return self.layer(x.flatten(1)).abs()


def test_signals_that_turn_round_are_the_least_steady_of_all(monkeypatch):
    one = torch.rand(1, 1, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    monkeypatch.setattr(
        "leakscope.matching.steadiness.unrelated_inputs", lambda *given, **told: [torch.cat([one, -one])]
    )
    (found,) = measure_layers(seen_of(Folded(), shape=(1, 2, 2)))
    assert found.steadiness == pytest.approx(-1)


def test_layers_before_a_maximum_are_unsteady_and_left_out():
    seen = seen_of(pooled())
    before, behind = measure_layers(seen)[:4], measure_layers(seen)[4:]
    assert max(one.steadiness for one in before) < 0.2 < min(one.steadiness for one in behind)
    assert SteadyLayers().unsteady(seen) == names_of(*BEFORE)


def test_it_is_the_same_whenever_it_is_asked():
    seen = seen_of(pooled())
    assert measure_layers(seen) == measure_layers(seen)


@pytest.mark.parametrize(("least", "count"), [(-2.0, 0), (0.2, 8), (2.0, 10)])
def test_the_limit_decides(least, count):
    """Above every cosine all would go: what remains is the latest layer that still receives enough."""
    assert len(SteadyLayers(least=least).unsteady(seen_of(pooled()))) == count


def test_enough_numbers_must_reach_what_is_compared():
    model = pooled(hidden=8)
    seen = seen_of(model)
    # 128 numbers behind the maximum cannot tell 256 pixels: the cut moves to where 2,048 come in.
    assert SteadyLayers(least=0.5).unsteady(seen) == names_of(*BEFORE[:-1])
    assert SteadyLayers(least=0.5, room=100).unsteady(seen) == ()


def test_smooth_networks_keep_all_layers():
    seen = seen_of(dense(), shape=(1, 6, 6))
    assert min(one.steadiness for one in measure_layers(seen)) > 0.5
    assert SteadyLayers().unsteady(seen) == ()
    attack = inverting_gradients()
    assert attack.recipe.narrowed(seen, steps=30) == replace(attack.recipe, steady=None)


@pytest.mark.parametrize(("steps", "factor"), [(20, 3), (80, 3), (120, 2), (240, 1), (300, 1)])
def test_the_search_compares_steady_layers_and_has_to_explain_all(steps, factor):
    seen, attack = seen_of(pooled()), inverting_gradients()
    narrowed = attack.recipe.narrowed(seen, steps=steps)
    assert narrowed.only == names_of(*BEHIND)
    assert narrowed.optimiser.lr == pytest.approx(factor * attack.recipe.optimiser.lr)
    assert tuple(attack.matched_part(seen).seen.update.tensors) == tuple(seen.update.tensors)
    given = inverting_gradients(lr=0.3).recipe.narrowed(seen, steps=steps)
    assert (given.only, given.optimiser.lr) == (names_of(*BEHIND), 0.3)


@pytest.mark.parametrize("spec", ["gaussian-noise:sigma=0.01", "dp-sgd:norm=1,noise_multiplier=1", "quantise", "sign"])
def test_who_knows_that_every_number_is_disturbed_compares_all_layers(spec):
    seen = seen_of(pooled())
    attack = knowing(spec)
    narrowed = attack.recipe.narrowed(seen, steps=30)
    assert (narrowed.only, narrowed.steady) == (None, None)
    assert narrowed.optimiser == attack.recipe.optimiser
    assert knowing("prune").recipe.narrowed(seen, steps=30).only == names_of(*BEHIND)


def test_what_a_defence_leaves_out_stays_out():
    seen = seen_of(pooled())
    attack = knowing("soteria")
    assert attack.recipe.narrowed(seen, steps=30).only == ("9.weight", "9.bias", "12.bias")
    assert "12.weight" not in attack.matched_part(seen).seen.update.tensors


def test_nothing_is_left_out_where_only_unsteady_layers_were_shared():
    seen = seen_of(pooled())
    first = {name: value for name, value in seen.update.tensors.items() if name.startswith("0.")}
    part = replace(seen, update=replace(seen.update, tensors=first))
    assert inverting_gradients().recipe.narrowed(part, steps=30).only is None


def test_the_paper_compares_all_layers():
    assert inverting_gradients(schedule="paper").recipe.steady is None
    assert inverting_gradients(layers="all").recipe.steady is None
    assert inverting_gradients(schedule="paper", layers="steady").recipe.steady is not None
    with pytest.raises(UsageError, match="layers must be 'steady' or 'all', got 'first'"):
        inverting_gradients(layers="first")


def test_the_loss_is_that_of_what_was_compared():
    seen, attack = seen_of(pooled()), inverting_gradients(steps=5)
    found = attack.reconstruct(seen, seed=3, diagnosing=False)
    assert attack.evaluate(seen, found) == pytest.approx(found.loss, rel=1e-9)
    whole = inverting_gradients(steps=5, layers="all")
    assert abs(whole.evaluate(seen, found) - found.loss) > 1e-3 * found.loss


def test_behind_a_maximum_it_comes_nearer_to_the_picture():
    model = pooled(seed=1)
    digit = ls.data.load("digits", split="test", indices=[1])
    inputs = nn.functional.interpolate(digit.inputs, SHAPE[1:], mode="bilinear").double()
    batch = ls.Batch(inputs, digit.targets % 4)
    seen = ls.observe(model, shared(model, batch), scenario="B", truth=batch)
    attacks = [inverting_gradients(steps=60, layers=layers) for layers in ("all", "steady")]
    found = [float(ls.score(one.reconstruct(seen, diagnosing=False), batch).psnr) for one in attacks]
    assert found[1] > found[0] + 3


class Pairs(nn.Module):
    """Returns no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(36, 4).double()

    def forward(self, x):
        return {"logits": self.layer(x.flatten(1))}


def test_a_network_that_is_not_understood_keeps_all_layers():
    seen = replace(seen_of(dense(), shape=(1, 6, 6)), model=Pairs())
    assert measure_layers(seen) == []
    assert SteadyLayers().unsteady(seen) == ()
