from __future__ import annotations

import pickle
from itertools import pairwise

import pytest
import torch

from leakscope.matching.optimisers import Adam, Evaluation, Langevin, constant, warm_cosine


class Still:
    """An objective with no slope, so that nothing but noise moves."""

    def __call__(self, variables):
        zeros = {name: torch.zeros_like(value) for name, value in variables.items()}
        return Evaluation(torch.ones(len(variables["inputs"])), zeros)

    def measure(self, variables):
        return torch.ones(len(variables["inputs"]))


def walk(optimiser: Langevin, start: dict[str, torch.Tensor], *, steps: int = 5, project=lambda v: v):
    return [state.variables for state in optimiser.states(Still(), start, steps=steps, project=project)]


def start(groups: int = 2) -> dict[str, torch.Tensor]:
    return {"inputs": torch.zeros(groups, 1, 1, 40, 40), "labels": torch.zeros(groups, 3)}


def test_noise_has_the_size_of_the_rate_and_moves_inputs_alone():
    path = walk(Langevin(Adam(lr=0.5, schedule=constant), noise=0.2).seeded(1), start())
    assert float(path[0]["inputs"].abs().max()) == 0
    steps = [after["inputs"] - before["inputs"] for before, after in pairwise(path)]
    for step in steps:
        assert float(step.std()) == pytest.approx(0.1, rel=0.05)
    assert not torch.equal(steps[0], steps[1])
    assert float(path[-1]["labels"].abs().max()) == 0


def test_the_seed_decides_and_neighbours_do_not_matter():
    make = Langevin(Adam(lr=0.5), noise=0.2)
    one, again, other = (walk(make.seeded(seed), start())[-1]["inputs"] for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    alone = walk(make.seeded(1), start(1))[-1]["inputs"]
    assert torch.equal(alone[0], one[0])


def test_noise_is_projected_and_none_is_the_base():
    boxed = walk(Langevin(Adam(lr=5.0), noise=1.0), start(), project=lambda v: {**v, "inputs": v["inputs"].clamp(0, 1)})
    assert 0 <= float(boxed[-1]["inputs"].min()) <= float(boxed[-1]["inputs"].max()) <= 1
    silent = walk(Langevin(Adam(lr=0.5), noise=0.0), start())
    assert float(silent[-1]["inputs"].abs().max()) == 0


def test_the_rate_warms_up_and_dies_down():
    rates = [warm_cosine(step, 1000) for step in range(1000)]
    assert rates[0] < 0.05
    assert max(rates) == rates[50] == 1.0
    assert rates[-1] < 1e-4
    assert warm_cosine(0, 3) == 1.0


def test_it_is_a_value():
    optimiser = Langevin(Adam(schedule=warm_cosine), noise=0.1).seeded(3)
    assert pickle.loads(pickle.dumps(optimiser)) == optimiser
    assert optimiser.evaluations(7) == 7
