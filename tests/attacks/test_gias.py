from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from leakscope.attack import Effort
from leakscope.attacks.gias import Gias, gias
from leakscope.client import share
from leakscope.defences.prune import prune
from leakscope.errors import UnsuitableError, UsageError
from leakscope.matching.distances import Cosine, Masked
from leakscope.matching.optimisers import Adam, three_drops
from leakscope.matching.penalties import TotalVariation
from leakscope.metrics import guess_baseline, score
from leakscope.models import build
from leakscope.observation.observe import observe
from leakscope.priors import smooth_prior
from leakscope.testing import check_attack, smallest_problem
from leakscope.types import Batch, Status

SHORT = {"prior": "smooth", "latent_steps": 150, "weight_steps": 50, "restarts": 2}


def seen_of(problem, *, scenario="A"):
    return observe(problem.model, share(problem.model, problem.batch, seed=1), scenario=scenario, truth=problem.batch)


def test_the_published_settings():
    attack = gias(prior="smooth")
    recipe = attack.search.recipe
    assert recipe.optimiser == Adam(lr=3e-2, signed=False, schedule=three_drops)
    assert (recipe.distance, recipe.penalties) == (Cosine(), (TotalVariation(1e-6),))
    assert (attack.search.steps, attack.search.restarts) == (500, 3)
    assert (attack.weight_steps, attack.weight_lr) == (5_000, 1e-3)


def test_each_search_moves_at_its_own_rate(monkeypatch):
    rates = []
    states = Adam.states

    def record(self, evaluate, start, *, steps, project):
        rates.append((self.lr, self.signed, steps))
        return states(self, evaluate, start, steps=steps, project=project)

    monkeypatch.setattr(Adam, "states", record)
    gias(prior="smooth", latent_steps=3, weight_steps=2, restarts=1).reconstruct(seen_of(smallest_problem()))
    assert rates == [(3e-2, False, 3), (1e-3, False, 2)]


def test_it_keeps_the_contract():
    check_attack(gias(**SHORT))


def test_it_keeps_the_contract_in_double_precision():
    check_attack(gias(**SHORT), problem=smallest_problem(dtype=torch.float64))


def test_weights_reach_what_the_prior_cannot_make():
    problem = smallest_problem()
    seen, prior = seen_of(problem), smooth_prior(cutoff=3)
    latent = gias(prior=prior, latent_steps=100, weight_steps=0, restarts=2).reconstruct(seen)
    both = gias(prior=prior, latent_steps=100, weight_steps=120, weight_lr=1e-2, restarts=2).reconstruct(seen)
    assert len(both.history) == both.evaluations == 220
    assert both.history[:100] == latent.history
    assert both.history[100] == pytest.approx(latent.loss, rel=1e-3), "the second search starts where the first ended"
    assert both.loss < 0.2 * latent.loss
    assert float(score(both, problem.batch).psnr) > float(score(latent, problem.batch).psnr) + 5


def test_tuning_that_makes_the_match_worse_is_not_returned():
    seen = seen_of(smallest_problem())
    found = gias(**{**SHORT, "weight_lr": 30.0}).reconstruct(seen)
    alone = gias(**{**SHORT, "weight_steps": 0}).reconstruct(seen)
    assert torch.equal(found.inputs, alone.inputs)
    assert found.loss == alone.loss
    assert found.status is Status.OK
    assert any("did not improve" in note for note in found.notes)


@pytest.mark.parametrize("weight_steps", [0, 5])
def test_a_latent_search_that_diverged_is_no_evidence_and_no_crash(weight_steps):
    # A rate at which the latents leave what the prior knows: the search ends above its start.
    wild = gias(prior="smooth", latent_steps=12, weight_steps=weight_steps, latent_lr=1e4, restarts=2)
    found = wild.reconstruct(seen_of(smallest_problem()), seed=1)
    assert found.status is Status.DIVERGED
    assert any("no evidence" in note for note in found.notes)
    assert len(found.history) == 12 + weight_steps


def test_the_weights_are_tuned_at_the_latents_of_the_chosen_start():
    seen, attack = seen_of(smallest_problem()), gias(**{**SHORT, "weight_lr": 0.0, "restarts": 3})
    found, latents = attack.reconstruct(seen), attack.search.find([seen], 0)[0].variables["latent"]
    assert latents.shape == (1, *attack.prior.at(seen.input_shape, like=latents).latent_shape)
    # Tuning at rate 0 stays where it starts: at the picture of the first search.
    late = attack._tuning(latents).reconstruct(seen)
    torch.testing.assert_close(late.inputs, found.inputs, rtol=1e-5, atol=1e-6)


def test_several_examples_each_get_their_own_generator():
    model = build("mlp", num_classes=4, in_channels=1, image_size=8, hidden=[64], activation="sigmoid", seed=3)
    rows = torch.linspace(0, 1, 8)
    pictures = torch.stack([(rows[:, None] * rows[None, :]), 1 - 0.8 * rows[:, None].expand(8, 8)])[:, None]
    batch = Batch(pictures, torch.tensor([0, 2]))
    seen = observe(model, share(model, batch, seed=1), scenario="C", truth=batch)
    found = gias(prior="smooth", latent_steps=150, weight_steps=30, restarts=2).reconstruct(seen)
    assert sorted(found.targets.tolist()) == [0, 2]
    assert bool((score(found, batch).psnr > guess_baseline(batch) + 3).all())


def test_the_prior_is_named_or_the_way_to_get_one_is():
    with pytest.raises(UsageError, match="leakscope prior train"):
        gias()
    with pytest.raises(UsageError, match="weight_steps ≥ 0"):
        gias(prior="smooth", weight_steps=-1)
    with pytest.raises(UsageError, match="steps ≥ 1"):
        gias(prior="smooth", latent_steps=0)


def test_inputs_that_are_no_images_are_refused():
    model = torch.nn.Sequential(torch.nn.Linear(9, 3))
    batch = Batch(torch.rand(1, 9), torch.tensor([1]))
    seen = observe(model, share(model, batch), scenario="A", truth=batch)
    with pytest.raises(UnsuitableError, match=r"needs inputs \[C, H, W\]"):
        gias(**SHORT).reconstruct(seen)


def test_both_searches_are_cut_alike():
    attack = gias(prior="smooth").with_effort(Effort(110, 3))
    assert attack == gias(prior="smooth", latent_steps=10, weight_steps=100)
    assert attack.effort == Effort(110, 3, 1, 110)
    assert gias(prior="smooth", weight_steps=0).with_effort(Effort(40)).search.steps == 40
    assert gias(prior="smooth").with_effort(Effort(restarts=1)) == gias(prior="smooth", restarts=1)


def test_a_known_defence_changes_the_comparison():
    adapted = prune(0.9).adapt(gias(**SHORT))
    assert isinstance(adapted, Gias)
    assert adapted.search.recipe.distance == Masked(Cosine())
    assert adapted == replace(gias(**SHORT), search=prune(0.9).adapt(gias(**SHORT).search))
