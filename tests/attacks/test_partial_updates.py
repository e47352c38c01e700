"""Any attack runs when only some layers were shared, or says what it must have."""

from __future__ import annotations

import inspect

import pytest
import torch

from leakscope.errors import KnowledgeError, UnsuitableError
from leakscope.observation.observe import observe
from leakscope.observation.restrict import restrict
from leakscope.registry import ATTACKS, get_attack
from leakscope.testing import smallest_problem
from leakscope.types import Reconstruction
from tiny import shared

BRIEF = {
    "steps": 2,
    "restarts": 1,
    "retries": 0,
    "probe": 1,
    "seeds": 2,
    "population": 6,
    "latent_steps": 2,
    "weight_steps": 1,
    "prior": "smooth",
}
SELECTIONS = {"first": ["fc1"], "last": ["fc2"], "biases": ["*.bias"], "weights": ["*.weight"]}


def brief(name):
    accepted = inspect.signature(ATTACKS[name]).parameters
    return get_attack(name, **{option: value for option, value in BRIEF.items() if option in accepted})


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_on_some_layers_runs_or_names_what_it_needs(name, selection):
    given = smallest_problem()
    update = restrict(shared(given.model, given.batch), SELECTIONS[selection])
    seen = observe(given.model, update, scenario="B", truth=given.batch)
    found, refusal = None, ""
    try:
        found = brief(name).reconstruct(seen, seed=0)
    except (UnsuitableError, KnowledgeError) as error:
        refusal = str(error)
    if found is None:
        # The reason must name a layer, a tensor or a piece of knowledge, and a way out.
        assert any(word in refusal for word in ("share", "needs", "layer")), refusal
        assert any(word in refusal for word in ("use ", "share ", "give ")), refusal
        return
    assert isinstance(found, Reconstruction)
    assert found.inputs.shape[1:] == seen.input_shape
    assert bool(torch.isfinite(found.inputs).all())
