from __future__ import annotations

import pytest
import torch

from leakscope.matching.optimisers import SGD, Adam, Evaluation, RMSprop, constant, linear, three_drops
from leakscope.rng import generator, normal

LIKE = torch.empty(0, dtype=torch.float64)
START = {"inputs": normal((2, 3), generator(0), like=LIKE), "labels": normal((2, 4), generator(1), like=LIKE)}


def bowl(variables):
    """Σ v⁴/4 + v²/2 per group, so that the gradient is v³ + v."""
    parts = [(value**4 / 4 + value**2 / 2).flatten(1).sum(1) for value in variables.values()]
    return Evaluation(torch.stack(parts).sum(0), {name: value**3 + value for name, value in variables.items()})


def path(optimiser, *, steps=25, evaluate=bowl, start=START, project=lambda v: v):
    return list(optimiser.states(evaluate, dict(start), steps=steps, project=project))


def torch_path(make, *, steps=25, sign=False, factors=None):
    leaves = [value.clone().requires_grad_() for value in START.values()]
    optimiser = make(leaves)
    rate = optimiser.param_groups[0]["lr"]
    seen = []
    for step in range(steps):
        seen.append([leaf.detach().clone() for leaf in leaves])
        for leaf in leaves:
            grad = leaf.detach() ** 3 + leaf.detach()
            leaf.grad = grad.sign() if sign else grad
        optimiser.param_groups[0]["lr"] = rate * (factors(step, steps) if factors else 1.0)
        optimiser.step()
    return seen


def assert_same_path(ours, theirs):
    for state, values in zip(ours, theirs, strict=True):
        for mine, other in zip(state.variables.values(), values, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("sign", [False, True])
@pytest.mark.parametrize("schedule", [constant, linear, three_drops])
def test_adam_walks_as_torch_adam(sign, schedule):
    ours = path(Adam(lr=0.07, betas=(0.8, 0.99), signed=sign, schedule=schedule))
    make = lambda p: torch.optim.Adam(p, lr=0.07, betas=(0.8, 0.99))  # noqa: E731
    assert_same_path(ours, torch_path(make, sign=sign, factors=schedule))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_rmsprop_walks_as_torch_rmsprop(momentum):
    ours = path(RMSprop(lr=0.01, momentum=momentum, decay=0.9))
    make = lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, momentum=momentum)  # noqa: E731
    assert_same_path(ours, torch_path(make))


def test_a_variable_can_have_a_rate_of_its_own():
    plain, slowed = path(Adam(lr=0.1)), path(Adam(lr=0.1, rates={"labels": 0.5}))
    assert torch.equal(plain[1].variables["inputs"], slowed[1].variables["inputs"])
    moved = [states[1].variables["labels"] - START["labels"] for states in (plain, slowed)]
    torch.testing.assert_close(moved[1], 0.5 * moved[0])
    assert Adam(rates={"b": 1.0, "a": 2.0}) == Adam(rates=(("a", 2.0), ("b", 1.0)))


def test_signs_are_for_pixels_and_labels_only():
    start = {"inputs": START["inputs"], "shift": START["labels"]}
    signed, plain = (path(SGD(lr=0.1, momentum=0.0, signed=sign), start=start) for sign in (True, False))
    assert torch.equal(signed[1].variables["shift"], plain[1].variables["shift"])
    assert not torch.equal(signed[1].variables["inputs"], plain[1].variables["inputs"])


@pytest.mark.parametrize("sign", [False, True])
@pytest.mark.parametrize("momentum", [0.9, 0.3])
def test_sgd_walks_as_torch_sgd_with_nesterov_momentum(sign, momentum):
    ours = path(SGD(lr=0.02, momentum=momentum, signed=sign))
    make = lambda p: torch.optim.SGD(p, lr=0.02, momentum=momentum, nesterov=True)  # noqa: E731
    assert_same_path(ours, torch_path(make, sign=sign))


def test_the_three_drops_are_at_the_published_places():
    factors = [three_drops(step, 4800) for step in range(4800)]
    drops = [step for step in range(1, 4800) if factors[step] < factors[step - 1]]
    assert drops == [1799, 2999, 4203]
    assert factors[0] == 1.0
    assert factors[-1] == pytest.approx(1e-3)


def test_the_linear_schedule_falls_from_one_to_almost_zero():
    assert linear(0, 10) == 1.0
    assert linear(9, 10) == pytest.approx(0.1)


@pytest.mark.parametrize("optimiser", [Adam(lr=0.1), SGD(lr=0.01)], ids=["adam", "sgd"])
class TestEveryFirstOrderOptimiser:
    def test_a_state_holds_the_evaluation_of_its_own_iterate(self, optimiser):
        for state in path(optimiser):
            assert torch.equal(state.evaluation.distance, bowl(state.variables).distance)

    def test_the_first_state_is_the_start_and_the_caller_keeps_it(self, optimiser):
        before = START["inputs"].clone()
        states = path(optimiser)
        assert torch.equal(states[0].variables["inputs"], before)
        assert torch.equal(START["inputs"], before)
        assert len(states) == optimiser.evaluations(25) == 25

    def test_iterates_stay_where_they_are_projected(self, optimiser):
        for state in path(optimiser, project=lambda v: {k: x.clamp(-0.5, 0.5) for k, x in v.items()})[1:]:
            assert float(state.variables["inputs"].abs().max()) <= 0.5

    def test_groups_run_as_if_alone(self, optimiser):
        together = path(optimiser)[-1]
        for group in range(2):
            alone = path(optimiser, start={name: value[group : group + 1] for name, value in START.items()})[-1]
            torch.testing.assert_close(alone.variables["inputs"][0], together.variables["inputs"][group])

    def test_a_group_that_turns_nan_does_not_touch_the_others(self, optimiser):
        calls = []

        def failing(variables):
            found = bowl(variables)
            calls.append(None)
            if len(calls) > 5:
                found.distance[0] = torch.nan
                found.gradient["inputs"][0] = torch.nan
            return found

        healthy, broken = path(optimiser), path(optimiser, evaluate=failing)
        for clean, state in zip(healthy, broken, strict=True):
            assert torch.equal(clean.variables["inputs"][1], state.variables["inputs"][1])
            assert torch.isfinite(state.variables["inputs"]).all()
        assert broken[-1].active.tolist() == [False, True]
