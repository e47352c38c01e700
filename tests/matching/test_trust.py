"""A fast route is believed only where it agrees with double backward: at the start, between, at the end, everywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from leakscope.matching import routes
from leakscope.matching.candidates import Pixels
from leakscope.matching.checked_run import CheckedRun
from leakscope.matching.distances import Cosine, SquaredL2
from leakscope.matching.engine import run
from leakscope.matching.optimisers import Adam, Evaluation
from leakscope.matching.problem import Match, Part, PlainRoute, Problem
from leakscope.matching.replays import OneGradient
from leakscope.matching.routes import Guard, StructuredRoute, choose_route
from leakscope.matching.trust import (
    DISTANCE_GAP,
    START_ERROR,
    CheckPoint,
    Referee,
    harmless_error,
    later_limit,
    measure_gap,
)
from leakscope.rng import generator, normal_like, uniform
from leakscope.types import Observation
from tiny import batch_of, dense, seen_of

PULLBACKS = ("images", "targets")


class Wrong:
    """A program whose pullback is off by a share of its length, at right angles, once it was called often enough."""

    def __init__(self, inner, *, after=0, share=0.02, what="images", group=None):
        self.inner, self.names, self.calls = inner, inner.names, 0
        self.after, self.share, self.what, self.group = after, share, what, group

    def gradients(self, images, targets):
        return self.inner.gradients(images, targets)

    def pullback(self, first, direction):
        self.calls += 1
        found = dict(zip(PULLBACKS, self.inner.pullback(first, direction), strict=True))
        if self.calls > self.after:
            found[self.what] = self._turn(found[self.what])
        return found["images"], found["targets"]

    def _turn(self, value):
        noise = normal_like(value, generator(9))
        noise = noise - value * (noise * value).sum() / value.square().sum()
        turned = value + self.share * value.norm() / noise.norm() * noise
        if self.group is None:
            return turned
        rows = torch.arange(len(value)).reshape(-1, *[1] * (value.ndim - 1))
        return torch.where(rows == self.group, turned, value)


@pytest.fixture
def spoil(monkeypatch):
    """Make compiled networks of the given modes wrong."""

    def install(*modes, **options):
        compile_network = routes.compile_network

        def compile_wrongly(*args, mode, **kwargs):
            program = compile_network(*args, mode=mode, **kwargs)
            return Wrong(program, **options) if mode in modes else program

        monkeypatch.setattr(routes, "compile_network", compile_wrongly)

    return install


def place_of(seen: Observation, *, groups: int = 1, soft: bool = False) -> CheckPoint:
    images = uniform((groups, 2, *seen.input_shape), generator(5), like=torch.empty(0, dtype=seen.dtype))
    targets = torch.tensor([1, 3]).expand(groups, -1)
    if soft:
        targets = uniform((groups, 2, 4), generator(6), like=images).softmax(-1)
    goal = OneGradient().target(seen)
    return CheckPoint(images, targets, {name: value.expand(groups, *value.shape) for name, value in goal.items()})


def chosen(place: CheckPoint, seen: Observation):
    where = {"images": place.images, "targets": place.targets, "target": place.target}
    return choose_route(seen, OneGradient(), SquaredL2(), **where)


@pytest.fixture
def seen() -> Observation:
    return seen_of(dense(), batch_of([1, 3]))


# Less than one percent is admitted later in a run, not at its start.
@pytest.mark.parametrize("share", [0.01, 0.007])
def test_an_error_of_one_percent_is_refused_and_tangents_take_over(share, seen, spoil):
    spoil("differences", share=share)
    route, note = chosen(place_of(seen), seen)
    assert isinstance(route, StructuredRoute)
    assert note.startswith("structured, tangents: within")


@pytest.mark.parametrize("what", PULLBACKS)
def test_images_and_soft_targets_are_both_compared(seen, spoil, what):
    spoil("differences", "tangents", what=what)
    route, note = chosen(place_of(seen, soft=True), seen)
    assert isinstance(route, PlainRoute)
    assert "disagreed" in note


def test_every_group_is_compared(seen, spoil):
    spoil("differences", "tangents", group=2)
    assert isinstance(chosen(place_of(seen, groups=3), seen)[0], PlainRoute)


@pytest.mark.parametrize(
    ("distance", "image", "agrees"),
    [
        (1.0, [3.0, 4.0], True),
        (1.0, [3.008, 4.006], True),
        (1.0, [3.024, 3.982], False),
        (1.0, [3.03, 4.04], False),
        (1 + 2 * DISTANCE_GAP, [3.0, 4.0], False),
        (1.0, [float("nan"), 4.0], False),
    ],
)
def test_the_gap_is_a_relative_error(distance, image, agrees):
    reference = Match(torch.tensor([1.0]), torch.tensor([[3.0, 4.0]]), None)
    gap = measure_gap(Match(torch.tensor([distance]), torch.tensor([image]), None), reference)
    assert gap.within(START_ERROR) is agrees


def problem_of(seen: Observation, steps: int) -> Problem:
    return Problem((Part([seen], SquaredL2()),), Pixels(), OneGradient(), (), Adam(lr=0.05), steps)


def run_of(seen: Observation, steps: int, watch=None):
    start = {"inputs": uniform((2, 2, 1, 6, 6), generator(3), like=torch.empty(0, dtype=seen.dtype))}
    return run(problem_of(seen, steps), start, torch.tensor([[1, 3], [1, 3]]), watch=watch, seed=4)


def test_a_route_that_goes_wrong_in_the_middle_is_given_up_from_the_last_good_check(seen, spoil):
    steps = 300
    due = sorted(CheckedRun(steps, 2, 4)._due)
    assert len(due) == 2
    exact = run_of(seen, steps)
    # One call at the start, then one an evaluation: wrong between the first check and the second.
    spoil("differences", after=1 + due[0] + 5, share=0.3)
    heard: list[int] = []
    found = run_of(seen, steps, watch=lambda step, _images, _distance: heard.append(step))
    assert f"structured, differences, was given up at evaluation {due[1] + 1}" in found.routes[0]
    assert found.routes[0].startswith("structured, tangents: within")
    assert heard == list(range(steps))
    # What was right stays as it was; what was spent in vain is counted.
    assert torch.equal(found.history[: due[0] + 1], exact.history[: due[0] + 1])
    assert found.evaluations == steps + due[1] - due[0] - 1
    torch.testing.assert_close(found.history[-1], exact.history[-1], rtol=0.05, atol=0)


@pytest.mark.parametrize("steps", [12, 100])
def test_the_end_is_checked_too(seen, spoil, steps):
    spoil("differences", "tangents", after=8, share=0.3)
    found = run_of(seen, steps)
    assert found.routes[0].startswith("plain double backward")
    assert found.routes[0].count("was given up at the end") == 2
    assert found.evaluations == 3 * steps
    assert len(found.history) == steps


@pytest.mark.parametrize("steps", [1, 2, 99, 100, 150, 300, 1_000, 24_000])
@pytest.mark.parametrize("groups", [1, 8])
def test_checks_are_few(steps, groups):
    checked = CheckedRun(steps, groups, 0)
    count = len(checked.start_groups()) + len(checked.end_groups()) + len(checked._due)
    assert count == 2 if steps < 100 else count <= 0.03 * steps * groups
    assert all(0 < step < steps - 1 for step in checked._due)
    assert checked._due == CheckedRun(steps, groups, 0)._due


def test_a_run_too_large_to_keep_begins_from_its_start(monkeypatch):
    monkeypatch.setattr("leakscope.matching.checked_run.KEPT_BYTES", 100)
    checked = CheckedRun(10, 1, 0)
    for _ in range(5):
        checked.keep(Evaluation(torch.zeros(1), {"inputs": torch.zeros(7)}), worth=True)
        checked.approve()
    checked.begin_again()
    assert checked.recall(Evaluation) is None


@pytest.mark.parametrize(
    ("start", "here", "limit"),
    [(2.0, 2.0, 0.01), (2.0, 4.0, 0.01), (2.0, 0.5, 0.04), (2.0, 0.01, 0.1), (2.0, 0.0, 0.1), (0.0, 1.0, 0.01)],
)
def test_the_error_admitted_later_follows_the_derivative_of_the_start(start, here, limit):
    assert later_limit(start, here) == pytest.approx(limit)


@pytest.mark.parametrize(("share", "left", "agrees"), [(0.04, 1, False), (0.04, 0.02, True), (0.15, 0.02, False)])
def test_where_a_run_has_come_to_rest_the_error_counts_beside_the_derivative_of_the_start(share, left, agrees, spoil):
    batch = batch_of([1, 3])
    seen = seen_of(dense(), batch)
    spoil("differences", after=1, share=share)
    guard, place = Guard(seen, OneGradient(), SquaredL2()), place_of(seen)
    guard.choose(place, [0])
    later = CheckPoint(batch.inputs + left * (place.images - batch.inputs), place.targets, place.target)
    assert guard.check(later, [0]) is agrees


def pooled() -> nn.Module:
    """Winograd's convolutions round a constant image differently from place to place, so max pooling sees no tie."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        wide = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()]
        return nn.Sequential(*wide, nn.MaxPool2d(4), nn.Flatten(), nn.Linear(512, 4)).eval()


def grey_guard() -> tuple[Guard, CheckPoint]:
    seen = seen_of(pooled(), batch_of([1], shape=(3, 16, 16), dtype=torch.float32))
    goal = {name: value[None] for name, value in OneGradient().target(seen).items()}
    place = CheckPoint(torch.full((1, 1, 3, 16, 16), 0.5), torch.tensor([[1]]), goal)
    return Guard(seen, OneGradient(), Cosine()), place


def test_a_constant_start_is_judged_with_its_ties_broken():
    guard, place = grey_guard()
    guard.choose(place, [0])
    assert guard.is_fast
    assert "ties between equal pixels" in guard.note


def test_a_wrong_route_is_refused_at_a_constant_start_as_well(spoil):
    spoil("differences", "tangents", share=0.02)
    guard, place = grey_guard()
    guard.choose(place, [0])
    assert not guard.is_fast


def test_next_to_the_solution_rounding_is_not_taken_for_a_wrong_rule():
    batch = batch_of([1, 3], dtype=torch.float32)
    seen = seen_of(dense(dtype=torch.float32), batch)
    goal = {name: value[None] for name, value in OneGradient().target(seen).items()}
    place = CheckPoint(batch.inputs[None] + 1e-6, batch.targets[None], goal)
    guard = Guard(seen, OneGradient(), SquaredL2())
    plain = place.evaluate(guard.route)
    guard.choose(place, [0])
    assert guard.is_fast
    assert "ties" not in guard.note
    # The reference alone would have refused it: in float32 it is no better itself.
    assert measure_gap(place.evaluate(guard.route), plain).error > START_ERROR


@pytest.mark.parametrize(("rest", "agrees"), [(1e-3, True), (1e-6, False)])
def test_an_error_that_can_misjudge_no_step_is_harmless(rest, agrees, spoil):
    """A fifth of a derivative that promises nothing beside the distance: nothing explains the rest of that update."""
    batch = batch_of([1, 3])
    seen = seen_of(dense(), batch)
    spoil("differences", after=1, share=0.2)
    guard, place = Guard(seen, OneGradient(), SquaredL2()), place_of(seen)
    guard.choose(place, [0])
    goal = {name: value.clone() for name, value in place.target.items()}
    # At right angles to what moves with the pictures: the distance has a rest, the derivative does not.
    goal["3.bias"] += rest
    later = CheckPoint(batch.inputs[None] + 1e-8 * (place.images - batch.inputs), place.targets, goal)
    assert guard.check(later, [0]) is agrees


@pytest.mark.parametrize(
    ("distance", "here", "reach", "error"), [(2.0, 0.5, 4.0, 0.01), (1.0, 0.5, 4.0, 0.005), (2.0, 0.5, float("inf"), 0)]
)
def test_what_is_harmless_is_told_by_distance_derivative_and_reach(distance, here, reach, error):
    assert harmless_error(distance, here, reach) == pytest.approx(error)


def test_reach_is_the_diagonal_of_the_range():
    place = CheckPoint(torch.zeros(2, 1, 3, 2, 2), torch.zeros(2, 1), {})
    assert place.reach(1, (-1.0, 1.0)) == pytest.approx(2 * 12**0.5)
    assert place.reach(0, None) == float("inf")


def test_the_gap_of_a_distance_below_the_least_is_in_units_of_the_least():
    reference = Match(torch.tensor([1e-6]), torch.tensor([[3.0, 4.0]]), None)
    found = replace(reference, distance=torch.tensor([1.2e-6]))
    assert measure_gap(found, reference).distance == pytest.approx(0.2, rel=1e-5)
    assert measure_gap(found, reference, 1e-3).distance == pytest.approx(2e-4, rel=1e-5)


@pytest.mark.parametrize(("error", "agrees"), [(1e-7, True), (3e-6, False)])
def test_a_distance_that_has_vanished_counts_beside_its_rounding(error, agrees):
    """1 − cos of nearly equal directions has the rounding of numbers near 1, however little of it is left."""
    batch = batch_of([1, 3], dtype=torch.float32)
    seen = seen_of(dense(dtype=torch.float32), batch)
    plain = PlainRoute(seen, OneGradient(), Cosine())
    goal = {name: value[None] for name, value in OneGradient().target(seen).items()}
    place = CheckPoint(batch.inputs[None] + 1e-2, batch.targets[None], goal)

    def wrong(images, targets, target):
        found = plain(images, targets, target)
        return replace(found, distance=found.distance + error)

    found = place.evaluate(wrong)
    assert float(found.distance) < 1e-4
    assert Referee(plain).compare(wrong, place, 0, limit=0.01, found=found).agrees is agrees


def test_of_a_large_batch_some_examples_are_compared_and_all_where_they_mix():
    seen = seen_of(dense(), batch_of([0, 1, 2, 3, 0, 1, 2, 3]))
    images = uniform((2, 8, 1, 6, 6), generator(5), like=torch.empty(0, dtype=seen.dtype))
    place = CheckPoint(images, torch.arange(8).remainder(4).expand(2, -1), {})
    plain = PlainRoute(seen, OneGradient(), SquaredL2())
    part = Referee(plain, seed=3).sample(place)
    assert part.images.shape[:2] == part.targets.shape == (2, 4)
    places = [images[0].flatten(1).eq(one.flatten()).all(1).nonzero().item() for one in part.images[0]]
    assert part.targets[1].tolist() == [place % 4 for place in places]
    assert Referee(plain, whole=True).sample(place) is place
