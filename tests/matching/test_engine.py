from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from leakscope.matching.candidates import Candidate, Pixels
from leakscope.matching.distances import Cosine, SquaredL2
from leakscope.matching.engine import run
from leakscope.matching.objective import Objective
from leakscope.matching.optimisers import LBFGS, SGD, Adam, Evaluation, Optimiser, State
from leakscope.matching.penalties import TotalVariation
from leakscope.matching.problem import Part, Problem, Stop, plain_distance
from leakscope.matching.replays import AsKnown
from leakscope.rng import generator, uniform
from leakscope.types import Status
from tiny import batch_of, convolutional, dense, seen_of

OPTIMISERS = {"adam": Adam(lr=0.05), "sgd": SGD(lr=0.02), "lbfgs": LBFGS(inner=1)}


def problem_of(optimiser, *, seen=None, steps=12, stop=None, distance=None, penalties=(), model=None):
    seen = seen or [seen_of(model or dense(), batch_of([2]))]
    part = Part(seen, distance or SquaredL2())
    return Problem((part,), Pixels(), AsKnown(), penalties, optimiser, steps=steps, stop=stop or Stop())


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
        own = problem_of(LBFGS(), seen=[seen_of(model, victim)])
        assert torch.equal(outcome.distance[row], plain_distance(own, outcome.images[row], victim.targets))


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
        problem_of(Adam(lr=0.05)),
        {"inputs": starts(2)},
        labels(2),
        watch=lambda step, images, distance: seen_steps.append((step, images.shape, distance.shape)),
    )
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
    assert outcome.routes[0].startswith("structured")
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

    def describe(self, seen, variables):
        return (f"gain {float(variables['gain']):.3f}, offset {float(variables['fixed.offset']):.3f}",)


def test_a_candidate_of_several_variables_with_labels_of_its_own():
    seen = seen_of(dense(), batch_of([2]))
    problem = Problem((Part([seen], SquaredL2()),), Dimmed(), AsKnown(), (TotalVariation(1e-6),), LBFGS(), steps=12)
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


def three_rounds(*, weights=(1.0, 0.3, 2.0)):
    """Three updates over four examples: the second is behind all of them, the fourth behind the last alone."""
    rows = ([0, 1], [1, 2], [3, 1])
    everything = batch_of([2, 1, 0, 3])
    parts = []
    for place, (row, weight) in enumerate(zip(rows, weights, strict=True)):
        batch = replace(everything, inputs=everything.inputs[row], targets=everything.targets[row])
        model = convolutional(seed=place) if place == 1 else dense(seed=place)
        parts.append(Part([seen_of(model, batch)], SquaredL2(), torch.tensor(row), (weight,)))
    return everything, tuple(parts)


def joint_problem(parts, *, penalties=(), optimiser=None, steps=12, candidate=None):
    return Problem(parts, candidate or Pixels(), AsKnown(), penalties, optimiser or Adam(lr=0.05), steps=steps)


def four_examples(groups, *, seed=3):
    return uniform((groups, 4, 1, 6, 6), generator(seed), like=torch.empty(0, dtype=torch.float64))


def test_several_updates_add_up_with_their_weights():
    truth, parts = three_rounds()
    images, fixed = four_examples(2), truth.targets.expand(2, -1)
    found = Objective(joint_problem(parts), fixed, groups=2)({"inputs": images})
    by_hand = torch.zeros(2, dtype=torch.float64)
    for part in parts:
        alone = Problem((Part(part.seen, part.distance),), Pixels(), AsKnown(), (), Adam(), steps=1)
        own = images[:, part.members]
        by_hand += part.weights[0] * torch.stack(
            [plain_distance(alone, own[group], fixed[group][part.members]) for group in range(2)]
        )
    torch.testing.assert_close(found.distance, by_hand, rtol=1e-6, atol=0)
    exact = torch.stack([plain_distance(joint_problem(parts), images[group], truth.targets) for group in range(2)])
    torch.testing.assert_close(exact, by_hand, rtol=1e-12, atol=0)


@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft labels"])
def test_the_gradient_of_several_updates_is_that_of_finite_differences(soft):
    truth, parts = three_rounds()
    problem, fixed = joint_problem(parts), None if soft else truth.targets.expand(1, -1)
    place = {"inputs": four_examples(1)}
    if soft:
        place["labels"] = uniform((1, 4, 4), generator(8), like=place["inputs"])
    found = Objective(problem, fixed, groups=1)(place)

    def value(variables):
        return plain_distance(problem, variables["inputs"][0], problem.targets(variables, fixed)[0])

    for name in place:
        # One example at a time: behind the first update, behind all, behind the second, behind the last.
        for example in range(4):
            step = torch.zeros_like(place[name])
            step[:, example] = 1e-5 * (uniform(tuple(step[:, example].shape), generator(9), like=step) - 0.5)
            ends = [value({**place, name: place[name] + side * step}) for side in (1, -1)]
            along = (found.gradient[name] * step).sum()
            torch.testing.assert_close(along, (ends[0] - ends[1]) / 2, rtol=1e-3, atol=1e-12)


def test_distances_of_several_updates_are_measured_without_gradients_too():
    truth, parts = three_rounds()
    objective = Objective(joint_problem(parts), truth.targets.expand(2, -1), groups=2)
    images = four_examples(5)
    wide = objective.measure({"inputs": images})
    assert objective.evaluations == 3 * 5
    exact = torch.stack([plain_distance(joint_problem(parts), one, truth.targets) for one in images])
    torch.testing.assert_close(wide, exact, rtol=1e-6, atol=0)
    assert objective({"inputs": images[:2]}).distance.shape == (2,)
    assert objective.evaluations == 3 * 5 + 3


def test_one_update_named_as_a_part_of_itself_is_the_usual_problem():
    seen = seen_of(dense(), batch_of([2, 1]))
    begin = {"inputs": four_examples(2)[:, :2]}
    fixed = torch.tensor([[2, 1], [2, 1]])
    usual = run(joint_problem((Part([seen], SquaredL2()),)), begin, fixed)
    named = run(joint_problem((Part([seen], SquaredL2(), torch.tensor([0, 1])),)), begin, fixed)
    double = run(joint_problem((Part([seen], SquaredL2(), weights=(2.0,)),)), begin, fixed)
    assert torch.equal(usual.images, named.images)
    assert torch.equal(usual.distance, named.distance)
    # Adam is blind to the scale of its objective, all but its epsilon.
    torch.testing.assert_close(double.history, 2 * usual.history, rtol=1e-4, atol=0)
    torch.testing.assert_close(double.distance, 2 * usual.distance, rtol=1e-4, atol=0)


def test_several_updates_are_rebuilt_together_with_penalties_and_restarts():
    truth, parts = three_rounds(weights=(1.0, 1.0, 1.0))
    problem = joint_problem(parts, optimiser=LBFGS(), steps=15, penalties=(TotalVariation(1e-9),))
    outcome = run(problem, {"inputs": four_examples(2)}, truth.targets.expand(2, -1))
    assert outcome.status == (Status.OK, Status.OK)
    assert len(outcome.routes) == 3
    for group in range(2):
        torch.testing.assert_close(outcome.images[group], truth.inputs, rtol=0, atol=5e-2)
        exact = plain_distance(problem, outcome.images[group], outcome.targets[group])
        assert torch.equal(outcome.distance[group], exact)


def test_the_variables_of_the_returned_iterates_come_with_the_outcome():
    candidate = Dimmed()
    seen = seen_of(dense(), batch_of([2]))
    problem = joint_problem((Part([seen], SquaredL2()),), candidate=candidate)
    single = candidate.start(seen, 1, generator(0))
    start = {name: torch.stack([value, 0.5 * value]) for name, value in single.items()}
    outcome = run(problem, start, None)
    assert set(outcome.variables) == set(start)
    assert torch.equal(candidate.decode(seen, outcome.variables), outcome.images)
    assert torch.equal(outcome.variables["fixed.offset"], start["fixed.offset"])
    assert not torch.equal(outcome.variables["gain"], start["gain"])
