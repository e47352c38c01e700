"""Several rounds of one client matched together: noise averages out, and one round is as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import leakscope as ls
from leakscope.attacks.gias import gias
from leakscope.attacks.idlg import idlg
from leakscope.audits.rounds import Federation, play
from leakscope.defences.noise import gaussian_noise
from leakscope.matching.distances import SquaredL2
from leakscope.matching.rounds import average_of, parts_of
from leakscope.metrics import score
from leakscope.observation.scenario import get_scenario
from tiny import batch_of, dense, flat, shared

NOISE = gaussian_noise(0.03)
ATTACK = idlg(steps=40, retries=0)


def seen_after(rounds, *victims, rate=0.1):
    federation = Federation(dense(), victims, NOISE, None, get_scenario("A"), seed=3, rounds=rounds, rate=rate)
    return play(federation, ATTACK)[-1].seen


def test_noise_averages_out_over_rounds():
    batch = batch_of([2])
    reached = []
    for rounds in (1, 9):
        # A model that hardly moves: training would make the gradient smaller and the noise not.
        (seen,) = seen_after(rounds, batch, rate=1e-3)
        found = NOISE.adapt(ATTACK).reconstruct(seen, seed=2)
        assert NOISE.adapt(ATTACK).evaluate(seen, found) == found.loss
        reached.append(float(score(found, batch).psnr))
    # Nine rounds leave a third of the noise: 9.5 dB.
    assert reached[0] + 12 > reached[1] > reached[0] + 7, reached


def test_an_attacker_who_does_not_know_joins_nothing():
    (seen,) = seen_after(3, batch_of([2]))
    alone = ATTACK.reconstruct(replace(seen, earlier=()), seed=2)
    assert not ATTACK.joins_rounds
    assert torch.equal(ATTACK.reconstruct(seen, seed=2).inputs, alone.inputs)
    knowing = NOISE.adapt(ATTACK)
    assert knowing.joins_rounds
    one, several = (knowing.reconstruct(each, seed=2).inputs for each in (replace(seen, earlier=()), seen))
    assert not torch.equal(one, several)


def test_the_loss_is_the_mean_over_rounds_each_at_its_own_model():
    (seen,) = seen_after(3, batch_of([2]))
    joined = ATTACK.revised(lambda recipe: replace(recipe, joins_rounds=True))
    found = joined.reconstruct(seen, seed=2)
    gaps = []
    for one in (*seen.earlier, seen):
        own = shared(one.model, ls.Batch(found.inputs, found.targets, bounds=None)).tensors
        gaps.append(float(SquaredL2().value({n: v[None] for n, v in own.items()}, _grouped(one))))
    assert found.loss == pytest.approx(sum(gaps) / 3, rel=1e-6)
    assert len({round(gap, 9) for gap in gaps}) == 3
    assert [part.weight for part in parts_of(joined.recipe, [seen])] == [1 / 3] * 3
    assert parts_of(joined.recipe, [seen])[0].seen == [seen], "the latest comes first"


def _grouped(seen):
    return {name: value[None] for name, value in seen.update.tensors.items()}


def test_labels_are_read_off_the_mean_of_all_rounds():
    (seen,) = seen_after(4, batch_of([2]))
    knowing: Any = NOISE.adapt(ATTACK)
    recipe = knowing.recipe
    expected = torch.stack([flat(one.update.tensors) for one in (*seen.earlier, seen)]).mean(0)
    torch.testing.assert_close(flat(average_of(recipe, seen).update.tensors), expected)
    assert average_of(ATTACK.recipe, seen) is seen


def test_victims_run_in_lockstep_with_their_rounds():
    victims = (batch_of([2]), batch_of([1], seed=1))
    seen = seen_after(3, *victims)
    found = NOISE.adapt(ATTACK).reconstruct(list(seen), seed=2)
    for one, victim, view in zip(found, victims, seen, strict=True):
        assert float(score(one, victim).psnr) > 10
        assert NOISE.adapt(ATTACK).evaluate(view, one) == one.loss


def test_an_audit_joins_the_rounds_of_a_noisy_client_only_for_who_knows():
    options = {"defence": NOISE, "scenario": "A", "rounds": 3, "prior_alone": False}
    unaware, knowing = (ls.audit(dense(), batch_of([2]), ATTACK, adaptive=knows, **options) for knows in (False, True))
    assert (len(unaware.scores), len(knowing.scores)) == (3, 1)
    assert float(knowing.scores.psnr.max()) > float(unaware.scores.psnr.median()) + 2


def test_an_attack_around_a_search_takes_every_round_by_itself():
    revised: Any = NOISE.adapt(gias(prior="smooth", latent_steps=5, weight_steps=5))
    assert not revised.joins_rounds
    assert not revised.search.recipe.joins_rounds
    assert revised.search.recipe.noise == pytest.approx(0.03**2)
