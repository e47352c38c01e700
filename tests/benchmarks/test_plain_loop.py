from __future__ import annotations

import pytest
import torch

from leakscope.matching.candidates import Pixels
from leakscope.matching.distances import Cosine
from leakscope.matching.objective import Objective
from leakscope.matching.optimisers import Adam, constant, linear
from leakscope.matching.penalties import TotalVariation
from leakscope.matching.problem import Part, Problem
from leakscope.matching.replays import OneGradient
from leakscope.rng import generator, uniform
from tiny import batch_of, convolutional, seen_of


@pytest.fixture
def loop(load):
    return load("plain_loop")


def problem_of(tv):
    """The engine's cosine and total variation at one place, on pixels."""
    batch = batch_of([1, 3], shape=(1, 6, 6))
    model = convolutional(norm=True).eval()
    seen = seen_of(model, batch)
    part = Part([seen], Cosine())
    x = uniform(tuple(batch.inputs.shape), generator(5), like=batch.inputs)
    problem = Problem((part,), Pixels(box=False), OneGradient(), (TotalVariation(tv),), Adam(), steps=1)
    return model, seen, batch, x, problem


@pytest.mark.parametrize("tv", [0.0, 0.3])
def test_the_slope_is_that_of_the_engines_cosine_and_total_variation(loop, tv):
    model, seen, batch, x, problem = problem_of(tv)
    expected = Objective(problem, batch.targets[None], groups=1)({"inputs": x[None]})
    target = list(seen.update.tensors.values())
    found, distance = loop.slope(loop.one_gradient(model, batch.targets), target, x, tv=tv)
    torch.testing.assert_close(found, expected.gradient["inputs"][0], rtol=1e-6, atol=1e-10)
    assert distance == pytest.approx(float(expected.distance), rel=1e-6)
    assert 1e-3 < distance < 1.9


def test_the_penalty_is_a_part_of_the_slope_that_can_be_seen(loop):
    model, seen, batch, x, _ = problem_of(0.0)
    target, predict = list(seen.update.tensors.values()), loop.one_gradient(model, batch.targets)
    with_it, without = (loop.slope(predict, target, x, tv=tv)[0] for tv in (0.3, 0.0))
    assert float((with_it - without).norm()) > 0.1 * float(without.norm())


def test_total_variation_of_a_known_picture(loop):
    # Rows of 0, 1, 3: neighbours in a row differ by 1 and 2, in a column by nothing; the transpose is alike.
    x = torch.tensor([0.0, 1.0, 3.0]).repeat(4, 1)[None, None]
    assert float(loop.variation(x)) == float(loop.variation(x.mT)) == 1.5
    both = torch.tensor([[0.0, 1.0], [4.0, 5.0]])[None, None]
    assert float(loop.variation(both)) == 5.0


@pytest.mark.parametrize(("name", "schedule"), [("linear", linear), ("constant", constant)])
def test_rates_fall_as_the_engines_do(loop, name, schedule):
    settings = loop.Settings(rate=0.2, schedule=name)
    found = [loop.rate_at(settings, step, steps=8) for step in range(8)]
    assert found == pytest.approx([0.2 * schedule(step, 8) for step in range(8)])
    assert found[4] == pytest.approx(0.1 if name == "linear" else 0.2)


def test_a_grey_start_has_little_noise_and_a_uniform_one_fills_the_range(loop):
    shape = (2, 3, 32, 32)
    grey, same, other, uniform_start = (
        loop.begin(start, shape, seed=seed) for start, seed in (("grey", 3), ("grey", 3), ("grey", 4), ("uniform", 3))
    )
    assert torch.equal(grey, same)
    assert not torch.equal(grey, other)
    assert float(grey.mean()) == pytest.approx(0.5, abs=0.005)
    assert float(grey.std()) == pytest.approx(0.05, rel=0.05)
    assert 0 <= float(uniform_start.min()) < 0.01
    assert 0.99 < float(uniform_start.max()) < 1
    assert float(uniform_start.mean()) == pytest.approx(0.5, abs=0.02)


def pull_to(loop, x, *, target, rate, steps, schedule="linear"):
    """Run the loop on something whose slope is known: updates are the pixels, all but one direction of no interest."""
    settings = loop.Settings(rate=rate, tv=0.0, schedule=schedule)
    return [
        (made.clone(), distance)
        for made, distance in loop.search(lambda x: [x], [target], x, settings=settings, steps=steps)
    ]


def test_steps_go_down_by_the_rate_of_the_step(loop):
    # The cosine with (1, 0) grows with the first pixel and falls with the second.
    x, target = torch.tensor([[[[0.5, 0.4]]]]), torch.tensor([[[[1.0, 0.0]]]])
    found = pull_to(loop, x, target=target, rate=0.1, steps=2)
    assert len(found) == 2
    torch.testing.assert_close(found[0][0], torch.tensor([[[[0.6, 0.3]]]]))
    # Adam on signs that do not change moves by the rate, which is half of itself at step 1 of 2.
    torch.testing.assert_close(found[1][0], torch.tensor([[[[0.65, 0.25]]]]))
    held = pull_to(loop, x, target=target, rate=0.1, steps=2, schedule="constant")
    torch.testing.assert_close(held[1][0], torch.tensor([[[[0.7, 0.2]]]]))
    assert found[0][1] == pytest.approx(1 - 0.5 / (0.5**2 + 0.4**2) ** 0.5)
    assert torch.equal(x, torch.tensor([[[[0.5, 0.4]]]]))


def test_pixels_stay_in_range(loop):
    x, target = torch.tensor([[[[0.95, 0.05]]]]), torch.tensor([[[[1.0, 0.0]]]])
    assert pull_to(loop, x, target=target, rate=0.1, steps=1)[0][0].tolist() == [[[[1.0, 0.0]]]]


class TestLocalTraining:
    @pytest.fixture
    def victim(self, load):
        model = load("networks").build("lenet-dlg", seed=1)
        parameters = {name: value.detach() for name, value in model.named_parameters()}
        images = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        return load("victim").Victim("lenet-dlg", images, torch.tensor([7, 3, 5, 3]), parameters, {}, normalised=True)

    @pytest.fixture
    def predict(self, load, victim):
        worker = load("plain_worker")
        model = worker.Normalised(victim.network(), victim.normalise)

        def make(replay, lr):
            local = load("victim").Local(steps=4, batch=1, lr=lr)
            shared = worker.share(victim, local)
            return *worker.prepare(model, victim, shared, local=local, replay=replay), shared

        return make

    @pytest.fixture
    def mismatch(self, load):
        return lambda found, target: float(load("plain_loop").mismatch(found, target).detach())

    def test_simulated_steps_on_the_truth_are_the_shared_change(self, mismatch, victim, predict):
        function, target, shared = predict("simulate", 0.05)
        found = function(victim.images)
        for mine, theirs in zip(found, shared, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-6)
        assert mismatch(found, target) < 1e-5

    def test_one_gradient_stands_for_the_steps_downhill(self, mismatch, victim, predict):
        function, target, _ = predict("one-gradient", 1e-3)
        assert 1e-6 < mismatch(function(victim.images), target) < 0.3

    def test_a_gradient_is_matched_as_it_is_behind_the_normalisation(self, load, mismatch, victim):
        worker = load("plain_worker")
        model = worker.Normalised(victim.network(), victim.normalise)
        shared = worker.share(victim, None)
        function, target = worker.prepare(model, victim, shared, local=None, replay="simulate")
        assert mismatch(function(victim.images), target) == pytest.approx(0, abs=1e-5)
        other = worker.prepare(victim.network(), victim, shared, local=None, replay="simulate")[0]
        assert mismatch(other(victim.images), target) > 0.01
