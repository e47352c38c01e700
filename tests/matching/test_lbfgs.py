from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakscope.matching.optimisers import LBFGS, Evaluation
from leakscope.matching.optimisers.lbfgs import _Memory
from leakscope.rng import generator, normal, uniform

LIKE = torch.empty(0, dtype=torch.float64)


def quadratic(seed: int, size: int = 6):
    """½ xᵀAx − bᵀx with a condition number around 30."""
    basis = torch.linalg.qr(normal((size, size), generator(seed, "q"), like=LIKE)).Q
    matrix = basis @ torch.diag(torch.linspace(0.3, 9.0, size, dtype=torch.float64)) @ basis.T
    offset = normal((size,), generator(seed, "b"), like=LIKE)

    def value(x):
        return 0.5 * ((x @ matrix) * x).sum(-1) - x @ offset

    return value


def rosenbrock(x):
    return (100 * (x[..., 1:] - x[..., :-1].square()).square() + (1 - x[..., :-1]).square()).sum(-1)


def evaluator(value):
    def evaluate(variables):
        x = variables["inputs"].detach().requires_grad_()
        with torch.enable_grad():
            distance = value(x)
            (gradient,) = torch.autograd.grad(distance.sum(), x)
        return Evaluation(distance.detach(), {"inputs": gradient})

    return evaluate


def ours(value, start, *, steps=1, **options):
    optimiser = LBFGS(**options)
    return list(optimiser.states(evaluator(value), {"inputs": start}, steps=steps, project=lambda v: v))


def torchs(value, start, *, steps=1, **options):
    x = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([x], line_search_fn=None, **options)
    visited = []

    def closure():
        visited.append(x.detach().clone())
        optimiser.zero_grad()
        loss = value(x).sum()
        loss.backward()
        return loss

    for _ in range(steps):
        optimiser.step(closure)
    return visited


@pytest.mark.parametrize("lr", [1.0, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_the_path_on_a_quadratic_is_that_of_torch(seed, lr):
    value, start = quadratic(seed), normal((1, 6), generator(seed, "x"), like=LIKE)
    mine = ours(value, start, steps=2, lr=lr, inner=7, tolerance_change=0)
    theirs = torchs(value, start, steps=2, lr=lr, max_iter=7, history_size=100, tolerance_change=0)
    assert len(theirs) == 14
    for state, x in zip(mine, theirs, strict=True):
        torch.testing.assert_close(state.variables["inputs"], x, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("history", [100, 3], ids=["all pairs kept", "ring wraps round"])
@pytest.mark.parametrize("size", [2, 4])
def test_the_path_on_rosenbrock_is_that_of_torch(size, history):
    start = torch.tensor([[-1.2, 1.0, 0.7, -0.3][:size]], dtype=torch.float64)
    mine = ours(rosenbrock, start, lr=0.2, inner=12, history=history, tolerance_change=0)
    theirs = torchs(rosenbrock, start, lr=0.2, max_iter=12, history_size=history, tolerance_change=0)
    assert len(theirs) == 12
    for state, x in zip(mine, theirs, strict=True):
        torch.testing.assert_close(state.variables["inputs"], x, rtol=1e-7, atol=1e-9)


def two_loops(gradient, pairs, scale):
    """The classic recursion, newest pair last."""
    q, factors = gradient.clone(), []
    for step, change in reversed(pairs):
        factor = (step @ q) / (change @ step)
        factors.append(factor)
        q = q - factor * change
    q = scale * q
    for (step, change), factor in zip(pairs, reversed(factors), strict=True):
        q = q + step * (factor - (change @ q) / (change @ step))
    return q


@given(st.integers(1, 9), st.integers(2, 5), st.integers(2, 7), st.integers(0, 99))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_triangular_solve_is_the_two_loop_recursion(count, size, numbers, seed):
    diagonal = uniform((numbers,), generator(seed, "d"), like=LIKE) + 0.5
    memory, pairs = _Memory.empty(torch.zeros(1, numbers, dtype=torch.float64), size), []
    gradient = normal((1, numbers), generator(seed, "g"), like=LIKE)
    for i in range(count):
        step = normal((1, numbers), generator(seed, "s", i), like=LIKE)
        memory.remember(gradient, step)
        gradient = gradient + diagonal * step
        memory.learn(gradient)
        pairs.append((step[0], (diagonal * step)[0]))
    step, change = pairs[-1]
    wanted = normal((1, numbers), generator(seed, "v"), like=LIKE)
    expected = two_loops(wanted[0], pairs[-size:], (step @ change) / (change @ change))
    torch.testing.assert_close(memory.apply(wanted)[0], expected, rtol=1e-7, atol=1e-9)


def test_a_pair_without_curvature_changes_nothing():
    memory = _Memory.empty(torch.zeros(1, 3, dtype=torch.float64), 5)
    gradient = torch.tensor([[1.0, 2.0, -1.0]], dtype=torch.float64)
    memory.remember(gradient, gradient)
    memory.learn(2 * gradient)
    before = memory.apply(gradient)
    memory.remember(2 * gradient, gradient)
    memory.learn(gradient)
    torch.testing.assert_close(memory.apply(gradient), before)


def test_groups_together_walk_as_each_alone():
    starts = torch.tensor([[-1.2, 1.0], [0.5, -0.4], [1.0, 1.0]], dtype=torch.float64)
    together = ours(rosenbrock, starts, lr=0.2, inner=12)
    for group in range(3):
        alone = ours(rosenbrock, starts[group : group + 1], lr=0.2, inner=12)
        assert len(alone) == (1 if group == 2 else 12)
        for state, single in zip(together, alone, strict=False):
            found, expected = state.variables["inputs"][group], single.variables["inputs"][0]
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    # The third group starts in the minimum: it stops at once and stays.
    assert together[0].active.tolist() == [True, True, False]
    assert torch.equal(together[-1].variables["inputs"][2], starts[2])


def test_a_group_that_turns_nan_stops_alone():
    starts = torch.tensor([[-1.2, 1.0], [0.5, -0.4]], dtype=torch.float64)
    evaluate, calls = evaluator(rosenbrock), []

    def failing(variables):
        found = evaluate(variables)
        calls.append(None)
        if len(calls) > 4:
            found.distance[0] = torch.nan
            found.gradient["inputs"][0] = torch.nan
        return found

    clean = ours(rosenbrock, starts, lr=0.2, inner=12)
    broken = list(LBFGS(lr=0.2, inner=12).states(failing, {"inputs": starts}, steps=1, project=lambda v: v))
    assert len(broken) == 12
    for state, other in zip(broken, clean, strict=True):
        torch.testing.assert_close(state.variables["inputs"][1], other.variables["inputs"][1], rtol=1e-12, atol=1e-12)
        assert torch.isfinite(state.variables["inputs"]).all()
    assert broken[-1].active.tolist() == [False, True]


def test_a_solved_quadratic_ends_early_at_its_minimum():
    value = quadratic(0)
    states = ours(value, normal((1, 6), generator(1), like=LIKE), steps=20, inner=20)
    assert len(states) < 60
    assert not states[-1].active.any()
    # The slope that ends a run is the gradient squared, so the gradient is its root.
    assert float(states[-1].evaluation.gradient["inputs"].abs().max()) < 1e-4


def test_signed_uses_the_sign_of_the_gradient():
    states = ours(quadratic(2), torch.full((1, 6), 3.0, dtype=torch.float64), lr=0.1, inner=2, signed=True)
    moved = states[1].variables["inputs"] - states[0].variables["inputs"]
    expected = -0.1 / 6 * states[0].evaluation.gradient["inputs"].sign()
    torch.testing.assert_close(moved, expected)
