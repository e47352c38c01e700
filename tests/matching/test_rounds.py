"""Several rounds of one client matched together: noise averages out, and one round is as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import leakscope as ls
from leakscope.attacks.gias import gias
from leakscope.attacks.idlg import idlg
from leakscope.attacks.inverting_gradients import inverting_gradients
from leakscope.audits.rounds import Federation, play
from leakscope.defences.chain import chain
from leakscope.defences.dp_fedavg import dp_fedavg
from leakscope.defences.key_lock import key_lock
from leakscope.defences.noise import gaussian_noise
from leakscope.matching.distances import SquaredL2
from leakscope.matching.objective import sum_matches
from leakscope.matching.problem import Match, Part
from leakscope.matching.rounds import average_of, parts_of
from leakscope.metrics import score
from leakscope.networks import start_unknowns
from leakscope.observation.scenario import get_scenario
from leakscope.rng import generator
from tiny import batch_of, convolutional, dense, flat, shared

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
    assert [part.weights for part in parts_of(joined.recipe, [seen])] == [(1 / 3,)] * 3
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


def test_a_round_counts_by_its_signal_over_its_noise_where_lengths_are_divided_out():
    (seen,) = seen_after(4, batch_of([2]), rate=0.3)
    knowing: Any = NOISE.adapt(inverting_gradients(steps=40))
    parts = parts_of(knowing.recipe, [seen])
    entries = flat(seen.update.tensors).numel()
    clear = [float(flat(one.update.tensors).square().sum()) / (0.03**2 * entries) - 1 for one in rounds_of_one(seen)]
    assert max(clear) > 3 * min(clear), "training must have made the gradients shorter"
    assert [part.weights[0] for part in parts] == pytest.approx([value / sum(clear) for value in clear])
    # Squared errors of the updates themselves have the same variance in all rounds.
    plain: Any = NOISE.adapt(ATTACK)
    assert [part.weights for part in parts_of(plain.recipe, [seen])] == [(0.25,)] * 4
    # A bound on the length is matched in units of the observed one, and so is what hides behind it.
    private: Any = dp_fedavg(1e6, 0.03e-6).adapt(ATTACK)
    assert [part.weights[0] for part in parts_of(private.recipe, [seen])] == pytest.approx(
        [value / sum(clear) for value in clear]
    )


def rounds_of_one(seen):
    return (seen, *reversed(seen.earlier))


def test_rounds_that_are_all_noise_count_the_same():
    (seen,) = seen_after(3, batch_of([2]))
    knowing: Any = gaussian_noise(10.0).adapt(inverting_gradients(steps=40))
    assert [part.weights[0] for part in parts_of(knowing.recipe, [seen])] == pytest.approx([1 / 3] * 3)
    relative: Any = gaussian_noise(0.3, relative=True).adapt(inverting_gradients(steps=40))
    found = [part.weights[0] for part in parts_of(relative.recipe, [seen])]
    # Noise in proportion to the update: as clear in every round, but for the share of the mean in a tensor's energy.
    assert max(found) < 1.2 / 3, found


@pytest.mark.slow
def test_late_rounds_of_a_client_whose_examples_are_learnt_do_not_hide_the_first():
    batch, attack = batch_of([2]), inverting_gradients(steps=80)
    found: Any = {}
    for knows in (False, True):
        result = ls.audit(
            dense(),
            batch,
            attack,
            defence=NOISE,
            adaptive=knows,
            scenario="A",
            rounds=9,
            prior_alone=False,
        )
        found[knows] = float(result.scores.psnr.max())
    assert found[True] > found[False], found


def test_every_victim_has_weights_of_its_own():
    victims = (batch_of([2]), batch_of([1], seed=1))
    seen = seen_after(3, *victims, rate=0.3)
    knowing: Any = NOISE.adapt(inverting_gradients(steps=20))
    both = torch.tensor([part.weights for part in parts_of(knowing.recipe, list(seen))])
    each = [torch.tensor([part.weights for part in parts_of(knowing.recipe, [one])]) for one in seen]
    torch.testing.assert_close(both, torch.cat(each, dim=1))
    assert not torch.allclose(both[:, 0], both[:, 1], rtol=1e-3)
    found = knowing.reconstruct(list(seen), seed=2)
    for one, view in zip(found, seen, strict=True):
        assert knowing.evaluate(view, one) == pytest.approx(one.loss, rel=1e-9)


def test_tensors_that_are_unknown_are_moved_by_all_rounds():
    batch, defence = batch_of([2]), chain(key_lock(), gaussian_noise(1e-6))
    federation = Federation(convolutional(), (batch,), defence, None, get_scenario("A"), seed=3, rounds=3)
    attack: Any = defence.adapt(inverting_gradients(steps=30))
    (seen,) = play(federation, attack)[-1].seen
    assert attack.joins_rounds
    found = attack.reconstruct(seen, seed=2)
    start = start_unknowns(seen.model, 1, generator(0))
    moved = [float((value - start[name]).abs().max()) for name, value in found.unknowns.items()]
    assert min(moved) > 0.01, moved


def test_groups_of_a_victim_have_its_weight_and_unknown_tensors_the_sum_over_rounds():
    (seen,) = seen_after(1, batch_of([2]))
    first, second = (Part([seen, seen], SquaredL2(), weights=own) for own in ((0.25, 0.5), (0.75, 0.5)))
    assert first.weigh(torch.ones(4, 2)).tolist() == [[0.25] * 2] * 2 + [[0.5] * 2] * 2
    images, targets = torch.zeros(4, 1, 1), torch.zeros(4, 1, dtype=torch.long)
    each = [
        Match(torch.full((4,), value), images + value, None, {"scale": torch.full((4, 3), value)})
        for value in (1.0, 8.0)
    ]
    found = sum_matches((first, second), each, images=images, targets=targets)
    assert found.distance.tolist() == [6.25, 6.25, 4.5, 4.5]
    assert found.images.flatten().tolist() == [6.25, 6.25, 4.5, 4.5]
    assert found.given["scale"].tolist() == [[6.25] * 3] * 2 + [[4.5] * 3] * 2
