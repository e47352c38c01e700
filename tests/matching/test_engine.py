from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from leakscope.matching.candidates import Candidate, Pixels
from leakscope.matching.distances import Cosine, SquaredL2
from leakscope.matching.engine import Problem, Stop, run
from leakscope.matching.lbfgs import LBFGS
from leakscope.matching.optimisers import SGD, Adam, Evaluation, Optimiser, State
from leakscope.matching.penalties import TotalVariation
from leakscope.matching.replays import AsKnown
from leakscope.rng import generator, uniform
from leakscope.types import Status
from tiny import batch_of, convolutional, dense, seen_of

OPTIMISERS = {"adam": Adam(lr=0.05), "sgd": SGD(lr=0.02), "lbfgs": LBFGS(inner=1)}


def problem_of(optimiser, *, seen=None, steps=12, stop=None, distance=None, penalties=(), model=None):
    seen = seen or [seen_of(model or dense(), batch_of([2]))]
    return Problem(
        seen, Pixels(), AsKnown(), distance or SquaredL2(), penalties, optimiser, steps=steps, stop=stop or Stop()
    )


def starts(groups: int, *, seed: int = 3) -> torch.Tensor:
    return uniform((groups, 1, 1, 6, 6), generator(seed), like=torch.empty(0, dtype=torch.float64))


def labels(groups: int, label: int = 2) -> torch.Tensor:
    return torch.full((groups, 1), label)


@dataclass(frozen=True)
class Scripted(Optimiser):
    """Visits given iterates, whatever the gradient says."""

    visits: tuple[torch.Tensor, ...]

    def states(self, evaluate, start, *, steps, project):
        for step, visit in enumerate(self.visits):
            found = evaluate({"inputs": visit})
            yield State(step, {"inputs": visit}, found, torch.isfinite(found.distance))

    def evaluations(self, steps):
        return len(self.visits)


@dataclass(frozen=True)
class Poisoned(Optimiser):
    """Turns one group's evaluations into NaN from a step on."""

    inner: Optimiser
    group: int
    step: int

    def states(self, evaluate, start, *, steps, project):
        calls = []

        def poisoned(variables):
            found = evaluate(variables)
            calls.append(None)
            if len(calls) <= self.step:
                return found
            distance = found.distance.clone()
            distance[self.group] = torch.nan
            gradient = {name: value.clone() for name, value in found.gradient.items()}
            gradient["inputs"][self.group] = torch.nan
            return Evaluation(distance, gradient)

        return self.inner.states(poisoned, start, steps=steps, project=project)

    def evaluations(self, steps):
        return self.inner.evaluations(steps)


def test_the_best_iterate_of_each_group_is_kept_with_its_own_distance():
    truth = batch_of([2]).inputs
    far, near = starts(2), 0.9 * truth + 0.1 * starts(2)
    swapped = torch.stack([near[0], far[1]]), torch.stack([far[0], near[1]])
    problem = problem_of(Scripted((far, swapped[0], far, swapped[1], far)))
    outcome = run(problem, {"inputs": far}, labels(2))
    assert torch.equal(outcome.images, near)
    assert torch.equal(outcome.distance, run(problem_of(Scripted((near,))), {"inputs": near}, labels(2)).distance)
    assert outcome.history.shape == (5, 2)
    torch.testing.assert_close(outcome.history.amin(0), outcome.distance, rtol=1e-6, atol=1e-12)


def test_a_run_that_ends_above_its_start_is_diverged_though_it_was_better_once():
    truth = batch_of([2]).inputs
    far, near = starts(1), 0.5 * truth + 0.5 * starts(1)
    away = run(problem_of(Scripted((far, near, far + 3))), {"inputs": far}, labels(1))
    back = run(problem_of(Scripted((far, near, near))), {"inputs": far}, labels(1))
    assert away.status == (Status.DIVERGED,)
    assert back.status == (Status.OK,)


def test_a_run_that_never_leaves_its_start_is_diverged():
    assert run(problem_of(Scripted((starts(1),) * 3)), {"inputs": starts(1)}, labels(1)).status == (Status.DIVERGED,)


@pytest.mark.parametrize("optimiser", OPTIMISERS.values(), ids=OPTIMISERS)
def test_nan_at_a_later_step_names_the_group_and_leaves_the_others_alone(optimiser):
    begin = {"inputs": starts(3)}
    clean = run(problem_of(optimiser), begin, labels(3))
    broken = run(problem_of(Poisoned(optimiser, group=1, step=4)), begin, labels(3))
    assert clean.status == (Status.OK,) * 3
    assert broken.status == (Status.OK, Status.DIVERGED, Status.OK)
    for group in (0, 2):
        torch.testing.assert_close(broken.images[group], clean.images[group], rtol=1e-9, atol=1e-11)
    assert torch.isfinite(broken.images).all()
    assert torch.isfinite(broken.distance).all()


@pytest.mark.parametrize("optimiser", OPTIMISERS.values(), ids=OPTIMISERS)
def test_nan_from_the_start_is_named_nan(optimiser):
    broken = run(problem_of(Poisoned(optimiser, group=0, step=0)), {"inputs": starts(2)}, labels(2))
    assert broken.status == (Status.NAN, Status.OK)
    alone = run(problem_of(Poisoned(optimiser, group=0, step=0)), {"inputs": starts(1)}, labels(1))
    assert alone.status == (Status.NAN,)
    assert alone.evaluations == 1


@pytest.mark.parametrize("optimiser", OPTIMISERS.values(), ids=OPTIMISERS)
def test_groups_in_lockstep_are_each_as_if_alone(optimiser):
    together = run(problem_of(optimiser), {"inputs": starts(3)}, labels(3))
    for group in range(3):
        alone = run(problem_of(optimiser), {"inputs": starts(3)[group : group + 1]}, labels(1))
        torch.testing.assert_close(alone.images[0], together.images[group], rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(alone.distance[0], together.distance[group], rtol=1e-6, atol=1e-12)


def test_victims_of_one_model_are_matched_each_with_its_own_update():
    model = dense()
    victims = [batch_of([label], seed=label) for label in (1, 3)]
    first = seen_of(model, victims[0])
    second = seen_of(model, victims[1])
    both = problem_of(LBFGS(), seen=[first, second], steps=10)
    begin = starts(1).repeat(4, 1, 1, 1, 1)
    outcome = run(both, {"inputs": begin}, torch.tensor([[1], [1], [3], [3]]))
    for row, victim in enumerate([victims[0]] * 2 + [victims[1]] * 2):
        torch.testing.assert_close(outcome.images[row], victim.inputs, rtol=0, atol=2e-2)


def test_a_run_ends_when_every_group_is_close_enough():
    truth = batch_of([2]).inputs[None]
    near = truth + 1e-4
    problem = problem_of(Adam(lr=1e-6), stop=Stop(distance=1e-3))
    assert run(problem, {"inputs": near}, labels(1)).evaluations == 1
    mixed = torch.cat([near, starts(1)])
    assert run(problem, {"inputs": mixed}, labels(2)).evaluations == 12


def test_a_run_without_progress_ends_after_its_patience():
    patient = Stop(patience=5, progress=0.01)
    stalled = problem_of(Adam(lr=1e-9), steps=50, stop=patient)
    assert run(stalled, {"inputs": starts(2)}, labels(2)).evaluations == 6
    moving = problem_of(Adam(lr=0.02), steps=30, stop=patient)
    assert run(moving, {"inputs": starts(2)}, labels(2)).evaluations == 30


def test_a_watcher_sees_every_step_and_changes_nothing():
    seen_steps = []
    plain = run(problem_of(Adam(lr=0.05)), {"inputs": starts(2)}, labels(2))
    watched = run(
        problem_of(Adam(lr=0.05)), {"inputs": starts(2)}, labels(2),
        watch=lambda step, images, distance: seen_steps.append((step, images.shape, distance.shape)),
    )  # fmt: skip
    assert seen_steps == [(step, (2, 1, 1, 6, 6), (2,)) for step in range(12)]
    assert torch.equal(plain.images, watched.images)


def test_soft_labels_move_with_the_images():
    begin = {"inputs": starts(1), "labels": torch.zeros(1, 1, 4, dtype=torch.float64)}
    outcome = run(problem_of(LBFGS(), steps=10), begin, None)
    assert outcome.targets.shape == (1, 1, 4)
    assert float(outcome.targets[0, 0].sum()) == pytest.approx(1.0)
    assert int(outcome.targets[0, 0].argmax()) == 2


@pytest.mark.parametrize("relative", [False, True])
def test_a_penalty_steers_the_steps_and_is_no_part_of_the_distance(relative):
    problems = [
        problem_of(Adam(lr=0.05), penalties=(TotalVariation(weight, relative=relative),)) for weight in (0.0, 5.0)
    ]
    outcomes = [run(problem, {"inputs": starts(1)}, labels(1)) for problem in problems]
    rough = [float((o.images[..., 1:] - o.images[..., :-1]).abs().mean()) for o in outcomes]
    assert rough[1] < rough[0]
    assert torch.equal(outcomes[0].history[0], outcomes[1].history[0])


def test_inputs_stay_in_the_box():
    outcome = run(problem_of(Adam(lr=2.0)), {"inputs": starts(2)}, labels(2))
    assert float(outcome.images.min()) >= 0
    assert float(outcome.images.max()) <= 1


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_batch_normalisation_in_either_mode_is_matched_without_touching_the_model(training):
    model = convolutional(norm=True).train(training)
    seen = seen_of(model, batch_of([2, 1]))
    before = {name: value.clone() for name, value in seen.model.state_dict().items()}
    begin = uniform((1, 2, 1, 6, 6), generator(0), like=torch.empty(0, dtype=torch.float64))
    outcome = run(problem_of(Adam(lr=0.05), seen=[seen], distance=Cosine()), {"inputs": begin}, torch.tensor([[2, 1]]))
    assert float(outcome.distance) < float(outcome.history[0])
    assert outcome.route.startswith("plain" if training else "structured")
    assert all(torch.equal(value, before[name]) for name, value in seen.model.state_dict().items())


@dataclass(frozen=True)
class Dimmed(Candidate):
    """Images through a learnt gain, with generated labels and a constant that must not move."""

    def start(self, seen, count, rng):
        like = torch.empty(0, dtype=seen.dtype)
        return {
            "inputs": uniform((count, *seen.input_shape), rng, like=like),
            "gain": torch.ones(count, dtype=seen.dtype),
            "logits": torch.zeros(count, seen.num_classes, dtype=seen.dtype),
            "fixed.offset": torch.full((count,), 0.1, dtype=seen.dtype),
        }

    def decode(self, seen, variables):
        gain, offset = (variables[name][..., None, None, None] for name in ("gain", "fixed.offset"))
        return gain * variables["inputs"] + offset

    @property
    def generates_labels(self):
        return True

    def soft_labels(self, seen, variables):
        return variables["logits"].softmax(-1)

    def project(self, seen, variables):
        return variables

    def describe(self, seen, variables):
        return (f"gain {float(variables['gain']):.3f}, offset {float(variables['fixed.offset']):.3f}",)


def test_a_candidate_of_several_variables_with_labels_of_its_own():
    seen = seen_of(dense(), batch_of([2]))
    problem = Problem([seen], Dimmed(), AsKnown(), SquaredL2(), (TotalVariation(1e-6),), LBFGS(), steps=12)
    start = {name: value[None] for name, value in Dimmed().start(seen, 1, generator(0)).items()}
    outcome = run(problem, start, None)
    assert float(outcome.distance[0]) < 1e-3 * float(outcome.history[0, 0])
    assert outcome.targets.shape == (1, 1, 4)
    assert int(outcome.targets.argmax()) == 2
    (note,) = outcome.notes[0]
    assert note.endswith("offset 0.100")
    assert "gain 1.000" not in note


def test_a_population_is_measured_without_gradients():
    found = {}

    @dataclass(frozen=True)
    class Population(Optimiser):
        def states(self, evaluate, start, *, steps, project):
            found["many"] = evaluate.measure({"inputs": starts(5)})
            found["each"] = [evaluate.measure({"inputs": starts(5)[i : i + 1]}) for i in range(5)]
            evaluation = evaluate(start)
            yield State(0, start, evaluation, torch.isfinite(evaluation.distance))

        def evaluations(self, steps):
            return 1

    run(problem_of(Population()), {"inputs": starts(1)}, labels(1))
    torch.testing.assert_close(found["many"], torch.cat(found["each"]))
