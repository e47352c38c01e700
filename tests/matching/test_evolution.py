from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from leakscope.errors import MissingExtraError, UsageError
from leakscope.matching.optimisers import CMAES

cma = pytest.importorskip("cma", reason="needs the extra prior")


class Bowl:
    """Squared distance of each group from a point of its own."""

    def __init__(self, goals):
        self.goals, self.rows = goals, []

    def measure(self, variables):
        points = torch.cat([value.flatten(1) for value in variables.values()], 1)
        self.rows.append(len(points))
        goals = self.goals if len(self.goals) == len(points) else self.goals[:1]
        return (points - goals).square().sum(1)


def same(variables):
    return variables


def start(groups, dtype=torch.float64):
    return {"latent": torch.zeros(groups, 2, 2, dtype=dtype), "shift": torch.zeros(groups, 1, dtype=dtype)}


def run(bowl, groups, *, steps=60, seed=3, dtype=torch.float64):
    search = CMAES(population=12, sigma=0.5).seeded(seed)
    return list(search.states(bowl, start(groups, dtype), steps=steps, project=same))


@pytest.mark.parametrize("groups", [1, 3])
def test_every_group_finds_its_own_point(groups):
    goals = torch.arange(groups * 5, dtype=torch.float64).reshape(groups, 5) / 7 - 1
    states = run(Bowl(goals), groups)
    last = states[-1]
    assert float(last.evaluation.distance.max()) < 1e-3
    assert torch.allclose(last.variables["shift"][:, 0], goals[:, 4], atol=0.05)
    assert last.variables["latent"].shape == (groups, 2, 2)


def test_every_state_holds_an_iterate_and_its_own_distance():
    bowl = Bowl(torch.ones(2, 5, dtype=torch.float64))
    for state in run(bowl, 2, steps=5):
        assert torch.allclose(state.evaluation.distance, bowl.measure(state.variables))
        assert bool(state.active.all())


def test_evaluations_are_counted():
    bowl = Bowl(torch.ones(1, 5, dtype=torch.float64))
    states = run(bowl, 1, steps=4)
    search = CMAES(population=12)
    assert sum(bowl.rows) == search.evaluations(4) == 1 + 3 * 12
    assert states[-1].step + 1 == search.evaluations(4), "a watcher sees the run end"


def test_a_large_population_is_measured_in_parts():
    bowl = Bowl(torch.ones(1, 5, dtype=torch.float64))
    list(CMAES(population=40, together=16).seeded(0).states(bowl, start(1), steps=2, project=same))
    assert bowl.rows == [1, 16, 16, 8]


def test_the_seed_decides_and_the_global_state_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - it is the global state that is checked
    first, again, other = (run(Bowl(torch.ones(1, 5)), 1, seed=s, steps=6, dtype=torch.float32) for s in (3, 3, 4))
    assert torch.equal(first[-1].variables["latent"], again[-1].variables["latent"])
    assert not torch.equal(first[-1].variables["latent"], other[-1].variables["latent"])
    assert first[-1].variables["latent"].dtype == torch.float32
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_candidates_without_a_distance_lose():
    class Holed(Bowl):
        def measure(self, variables):
            found = super().measure(variables)
            return torch.where(variables["shift"][:, 0] > 0.3, torch.nan, found)

    states = run(Holed(torch.full((1, 5), 0.2, dtype=torch.float64)), 1)
    assert float(states[-1].evaluation.distance) < 1e-3


def test_without_the_library_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cma", None)
    with pytest.raises(MissingExtraError, match=r"-e '\.\[prior\]'"):
        run(Bowl(torch.ones(1, 5, dtype=torch.float64)), 1, steps=2)


def test_misuse_is_named():
    with pytest.raises(UsageError, match="population ≥ 4"):
        CMAES(population=2)
    with pytest.raises(UsageError, match="sigma > 0"):
        CMAES(sigma=0.0)
