"""AGIC: one batch for many steps, labels that repeat, and several epochs used together."""

from __future__ import annotations

import copy
import statistics
from dataclasses import replace

import pytest
import torch
from torch import nn

from leakscope.attacks.agic import Agic, agic, one_batch_cosine
from leakscope.attacks.agic_epochs import (
    EpochOptions,
    EpochsReconstruction,
    Rounds,
    match_examples,
    number_examples,
    pooled_errors,
    recognise,
)
from leakscope.client import share
from leakscope.defences.prune import prune
from leakscope.errors import BadInputError, KnowledgeError, UsageError
from leakscope.matching.distances import Cosine, LayerWeighted
from leakscope.matching.optimisers import Adam, constant, linear, three_drops
from leakscope.matching.penalties import TotalVariation
from leakscope.metrics import guess_baseline, score
from leakscope.observation.observe import observe
from leakscope.rng import generator, normal_like, uniform
from leakscope.testing import check_attack
from leakscope.types import Batch, LocalTraining, Reconstruction, SharedUpdate, Status

CLASSES = 6


def small_network(seed=0, *, side=8):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1),
            nn.Sigmoid(),
            nn.Conv2d(12, 12, 3, padding=1),
            nn.Sigmoid(),
            nn.Flatten(),
            nn.Linear(12 * side * side, CLASSES),
        ).eval()


def pictures(count, *, seed=0, side=8):
    """Smooth pictures that differ, each with a label of its own."""
    draw = generator(seed, "pictures")
    places = torch.linspace(0, 1, side)
    phases = uniform((count, 4), draw)
    waves = [
        0.5 + 0.45 * torch.sin(6 * a * places[:, None] + 6 * b) * torch.cos(6 * c * places[None] + 6 * d)
        for a, b, c, d in phases
    ]
    return Batch(torch.stack(waves)[:, None], torch.arange(count) % CLASSES)


def look(model, batch, *, local=None, scenario="C"):
    update = share(model, batch, local=local)
    assert isinstance(update, SharedUpdate)
    return observe(model, update, scenario=scenario, truth=batch)


def narrow_network(seed=0):
    """Hardly more weights than two pictures of 12 × 12 have pixels: one update leaves much open."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2, padding=1),
            nn.Sigmoid(),
            nn.Conv2d(4, 4, 3, stride=2, padding=1),
            nn.Sigmoid(),
            nn.Flatten(),
            nn.Linear(36, CLASSES),
        ).eval()


def later_round(model, *, seed):
    """The same network, moved as far as a round of training would."""
    moved = copy.deepcopy(model)
    moved.load_state_dict({k: v + 0.2 * normal_like(v, generator(seed, k)) for k, v in model.state_dict().items()})
    return moved


def test_contract():
    check_attack(agic(steps=60))


def test_options_reach_the_distance():
    attack = agic(beta=2.0, relu_modifier=False, batch_norm="mean", schedule="paper", signed=True)
    assert attack.recipe.distance == LayerWeighted(Cosine(), 2.0, relu_modifier=False, batch_norm="mean")
    assert attack.recipe.optimiser == Adam(lr=0.1, signed=True, schedule=three_drops)
    assert agic() == agic()
    with pytest.raises(UsageError, match="schedule"):
        agic(schedule="quick")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="signed=True, got signed=False; use schedule='paper'"):
        agic(signed=False)
    with pytest.raises(UsageError, match="signed=False, got signed=True"):
        agic(schedule="held", signed=True)
    with pytest.raises(UsageError, match="two weights"):
        agic(gammas=(1.0,))


PUBLISHED = LayerWeighted(Cosine(), 50.0, relu_modifier=True, batch_norm="as-conv")


def test_the_published_settings_are_the_text_of_the_paper():
    # Adam "based on the gradient values": unsigned. First epoch 1, later ones 0.1.
    attack = agic(schedule="paper")
    assert attack.recipe.distance == PUBLISHED
    assert attack.recipe.optimiser == Adam(lr=0.1, signed=False, schedule=three_drops)
    assert attack.recipe.penalties == (TotalVariation(1e-4),)
    assert attack.steps == 10_000
    assert attack.several == EpochOptions(pre_steps=2_000, gammas=(1.0, 0.1))


def test_the_schedule_for_residual_networks_is_unsigned_with_a_rate_held_long():
    attack = agic(schedule="held")
    assert attack.recipe.distance == PUBLISHED
    assert attack.recipe.optimiser == Adam(lr=0.1, signed=False, schedule=constant)
    assert attack.recipe.penalties == (TotalVariation(1e-4),)
    assert (attack.steps, attack.several) == (1_000, EpochOptions(pre_steps=300, gammas=(1.0, 1.0)))


def test_the_default_is_the_accelerated_schedule_with_the_published_weights():
    attack = agic()
    assert attack.recipe.distance == PUBLISHED
    assert attack.recipe.optimiser == Adam(lr=0.4, signed=True, schedule=linear)
    assert attack.recipe.penalties == (TotalVariation(0.5, relative=True, fitted=True),)
    assert (attack.steps, attack.several) == (300, EpochOptions(pre_steps=100, gammas=(1.0, 1.0)))


def test_later_epochs_count_by_the_second_weight():
    # Swapped weights would make the first epoch count 0.1.
    seen, batch = two_rounds()
    rounds = Rounds.of((*seen.earlier, seen))
    problem = agic(schedule="paper")._joint.problem(rounds, ((0, 1), (0, 1)))
    assert [part.weights for part in problem.parts] == [(1.0,), (0.1,)]
    found = EpochsReconstruction(
        Reconstruction(batch.inputs.flip(0), batch.targets, 0.0, Status.OK), ((0, 1), (0, 1)), ()
    )
    alone = [agic().evaluate(one, found.joint) for one in rounds.seen]
    together = agic(schedule="paper").evaluate_epochs(rounds.seen, found)
    assert together == pytest.approx(alone[0] + 0.1 * alone[1], rel=1e-5)
    assert together != pytest.approx(0.1 * alone[0] + alone[1], rel=1e-2)


def normalising_network(*, training):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = (nn.Conv2d(1, 3, 3, stride=2), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 3))
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, CLASSES)).train(training)


STRONGER = "batch normalisation with stored statistics: untrained networks gave more away to schedule='held'; run both"


@pytest.mark.parametrize("training", [False, True])
def test_notes_say_which_ratio_was_used(training):
    seen = look(normalising_network(training=training), pictures(2))
    said = "layer weights: β = 50, with the ReLU modifier"
    found = agic(steps=2).reconstruct(seen)
    assert said in found.notes
    # Stored statistics no longer turn the weights off: the loss is that of the weighted distance.
    assert found.loss == agic(steps=2, beta=50.0).evaluate(seen, found)
    assert found.loss != agic(steps=2, beta=1.0, relu_modifier=False).evaluate(seen, found)
    assert (STRONGER in found.notes) is (not training)
    assert STRONGER not in agic(steps=2, schedule="held").reconstruct(seen).notes
    assert STRONGER not in agic(steps=2).reconstruct(look(small_network(), pictures(1))).notes
    plain = agic(steps=2, beta=1.0, relu_modifier=False).reconstruct(seen)
    assert "layer weights: β = 1, without the ReLU modifier; all layers count alike" in plain.notes
    together = agic(steps=2, pre_steps=2).reconstruct(replace(seen, earlier=(seen,)))
    assert together.notes.count(said) == 1


def test_delta_needs_the_rate_and_a_gradient_does_not():
    model, batch = small_network(), pictures(2)
    with pytest.raises(KnowledgeError, match="learning rate"):
        agic(steps=2).reconstruct(look(model, batch, local=LocalTraining(1e-4, 2), scenario="D"))
    assert agic(steps=2).reconstruct(look(model, batch, scenario="D")).inputs.shape == batch.inputs.shape


def test_merged_batch_stands_for_local_steps_at_a_small_rate_only():
    model, batch = small_network(), pictures(4)
    truth = Reconstruction(batch.inputs, batch.targets, 0.0, Status.OK)
    cosines = []
    for rate in (1e-4, 1.0, 10.0):
        local = LocalTraining(rate, steps=8, batch_size=1)
        cosines.append(one_batch_cosine(look(model, batch, local=local), truth, local))
    assert cosines[0] > 0.999
    assert cosines[0] > cosines[1] > cosines[2]


def test_notes_carry_the_measured_cosine_and_warn():
    model, batch = small_network(), pictures(4)
    fine = agic(steps=3).reconstruct(look(model, batch, local=LocalTraining(1e-4, steps=4)))
    assert any("cosine 1.0000 with 4 local steps" in note for note in fine.notes)
    assert not any("WARNING" in note for note in fine.notes)
    wild = agic(steps=3).reconstruct(look(model, batch, local=LocalTraining(10.0, steps=16)))
    assert any("WARNING" in note and "simulate" in note for note in wild.notes)
    once = agic(steps=3).reconstruct(look(model, batch))
    assert not any("one-batch" in note for note in once.notes)


def test_evaluations_do_not_grow_with_local_steps():
    model, batch = small_network(), pictures(4)
    counts = {
        agic(steps=3).reconstruct(look(model, batch, local=LocalTraining(1e-4, steps=steps))).evaluations
        for steps in (1, 4, 8)
    }
    assert counts == {3}


def test_reconstructs_from_a_delta():
    model, batch = small_network(), pictures(2)
    seen = look(model, batch, local=LocalTraining(1e-4, steps=2))
    attack = agic(steps=120)
    found = attack.reconstruct(seen, seed=1)
    assert found.status is Status.OK
    assert attack.evaluate(seen, found) == found.loss
    assert bool((score(found, batch).psnr > guess_baseline(batch) + 3).all())


def test_knows_of_pruning():
    informed = prune(0.5).adapt(agic(steps=3))
    seen = look(small_network(), pictures(1))
    found = informed.reconstruct(seen)
    assert isinstance(informed, Agic)
    assert informed.evaluate(seen, found) == found.loss


def test_labels_are_read_once_each_or_counted():
    model, batch = small_network(), pictures(3)
    unique = agic(steps=2).reconstruct(look(model, batch))
    assert unique.targets.tolist() == [0, 1, 2]
    assert not any("counted" in note for note in unique.notes)
    twice = Batch(batch.inputs, torch.tensor([4, 4, 1]))
    counted = agic(steps=2).reconstruct(look(model, twice))
    assert counted.targets.tolist() == [1, 4, 4]
    assert any("counted" in note for note in counted.notes)
    assert agic(steps=2).reconstruct(look(model, twice, scenario="A")).targets.tolist() == [4, 4, 1]


def test_matching_recovers_a_permutation_of_noisy_copies():
    first = pictures(8, seed=2).inputs
    order = torch.tensor([3, 1, 7, 0, 6, 2, 5, 4])
    noise = generator(5, "noise")
    second = first[order] + 0.15 * normal_like(first, noise)
    same = torch.zeros(8, dtype=torch.long)
    pairs = match_examples(first, second, labels=(same, same))
    assert {j: i for i, j in pairs} == dict(enumerate(order.tolist()))


def test_matching_keeps_labels_and_distance_apart():
    images = pictures(2, seed=3).inputs
    zero, one = torch.tensor([0, 0]), torch.tensor([1, 0])
    assert match_examples(images, images.flip(0), labels=(zero, one)) == [(0, 1)]
    far = float(pooled_errors(images[:1], images[1:]))
    assert match_examples(images[:1], images[1:], labels=(zero[:1], zero[:1]), most=0.5 * far) == []


def test_pooling_averages_noise_away():
    image = torch.full((1, 1, 8, 8), 0.5)
    checks = 0.5 + 0.2 * (torch.arange(8)[:, None] % 2 * 2 - 1) * (torch.arange(8) % 2 * 2 - 1)
    assert float(pooled_errors(image, checks[None, None])) == pytest.approx(0.0, abs=1e-12)
    assert pooled_errors(torch.zeros(2, 5), torch.ones(3, 5)).tolist() == [[1.0] * 3] * 2


def test_an_example_is_recognised_after_an_epoch_without_it():
    images = pictures(3, seed=4).inputs
    labels = torch.tensor([0, 1, 2])
    rows = [[0, 1], [2, 1], [0, 2]]
    found = number_examples([images[row] for row in rows], [labels[row] for row in rows])
    assert found == rows


def test_updates_of_one_epoch_share_nothing():
    batch = pictures(1)
    one = Reconstruction(batch.inputs, batch.targets, 0.0, Status.OK)
    assert recognise([one, one], epochs=[0, 0]) == ((0,), (1,))
    assert recognise([one, one], epochs=[0, 1]) == ((0,), (0,))


@pytest.mark.slow
def test_two_epochs_are_better_than_one():
    attack = agic(steps=100, pre_steps=40, beta=2.0)
    gains = []
    for seed in range(3):
        model, batch = narrow_network(seed), pictures(2, seed=seed + 10, side=12)
        seen = [look(model, batch), look(later_round(model, seed=seed), batch)]
        both = attack.reconstruct_epochs(seen, seed)
        assert both.members == ((0, 1), (0, 1))
        assert attack.evaluate_epochs(seen, both) == both.joint.loss
        single = [float(score(attack.reconstruct(one, seed), batch).psnr.mean()) for one in seen]
        gains.append(float(score(both.joint, batch).psnr.mean()) - max(single))
    assert statistics.median(gains) > 0.5


def test_partly_overlapping_updates_are_joined_where_they_overlap():
    model, all_three = small_network(), pictures(3, seed=6)
    parts = [Batch(all_three.inputs[row], all_three.targets[row]) for row in ([0, 1], [1, 2])]
    seen = [look(one, part) for one, part in zip((model, later_round(model, seed=1)), parts, strict=True)]
    attack = agic(steps=10, pre_steps=20)
    found = attack.reconstruct_epochs(seen, seed=2)
    assert found.members == ((0, 1), (1, 2))
    assert found.joint.inputs.shape == all_three.inputs.shape
    assert torch.equal(found.of_update(1).inputs, found.joint.inputs[[1, 2]])
    again = attack.reconstruct_epochs(seen, seed=2)
    assert torch.equal(found.joint.inputs, again.joint.inputs)
    assert "3 different examples, 1 recognised" in found.joint.notes[0]


def test_what_is_said_of_the_updates_is_said_of_them_together():
    model, batch = small_network(), pictures(2)
    seen = look(model, batch, local=LocalTraining(10.0, steps=16))
    seen = replace(seen, notes=(*seen.notes, "the client is slow"))
    found = agic(steps=4, pre_steps=3).reconstruct_epochs([seen, seen])
    assert any("WARNING" in note for note in found.alone[0].notes)
    for one in found.alone:
        assert set(one.notes) <= set(found.joint.notes)
    assert "the client is slow" in found.joint.notes
    assert len(set(found.joint.notes)) == len(found.joint.notes)
    assert found.of_update(1).notes == found.joint.notes


def test_epochs_of_another_client_are_refused():
    seen = look(small_network(), pictures(1))
    other = replace(seen, input_shape=(1, 4, 4))
    with pytest.raises(BadInputError, match="one client"):
        agic(steps=2).reconstruct_epochs([seen, other])
    with pytest.raises(UsageError, match="at least one"):
        agic(steps=2).reconstruct_epochs([])
    with pytest.raises(UsageError, match="not decreasing"):
        agic(steps=2).reconstruct_epochs([seen, seen], epochs=[1, 0])


def two_rounds(seed=0, *, local=None):
    """What a client sent in two rounds about the same two pictures, the earlier one inside the later."""
    model, batch = narrow_network(seed), pictures(2, seed=seed + 10, side=12)
    earlier, later = (look(one, batch, local=local) for one in (model, later_round(model, seed=seed)))
    return replace(later, earlier=(earlier,)), batch


def test_earlier_rounds_of_a_client_are_used_with_the_latest():
    seen, batch = two_rounds()
    attack = agic(steps=100, pre_steps=40, beta=2.0)
    assert attack.joins_rounds
    found = attack.reconstruct(seen, 3)
    both = attack.reconstruct_epochs([*seen.earlier, seen], 3)
    assert torch.equal(found.inputs, both.of_update(1).inputs)
    assert (found.loss, found.history, found.status) == (both.joint.loss, both.joint.history, Status.OK)
    alone = attack.reconstruct(replace(seen, earlier=()), 3)
    assert alone.joint is None
    assert float(score(found, batch).psnr.mean()) > float(score(alone, batch).psnr.mean()) + 0.5


def test_the_loss_over_several_rounds_is_computed_again_from_what_is_given():
    all_three, model = pictures(3, seed=6), small_network()
    parts = [Batch(all_three.inputs[row], all_three.targets[row]) for row in ([0, 1], [1, 2])]
    earlier, later = (look(one, part) for one, part in zip((model, later_round(model, seed=1)), parts, strict=True))
    seen = replace(later, earlier=(earlier,))
    attack = agic(steps=15, pre_steps=20, gammas=(1.0, 0.5))
    found = attack.reconstruct(seen, seed=2)
    assert found.inputs.shape == (2, 1, 8, 8)
    assert found.joint is not None
    assert found.joint.members == ((0, 1), (1, 2))
    assert attack.evaluate(seen, found) == found.loss
    # The example that only the latest update shows counts too, and so does the other one's label.
    darker = found.inputs.clone()
    darker[1] *= 0.5
    assert attack.evaluate(seen, replace(found, inputs=darker)) != found.loss
    other = torch.tensor([5, 2])
    assert attack.evaluate(seen, replace(found, targets=other)) != found.loss
    with pytest.raises(BadInputError, match="earlier rounds"):
        attack.evaluate(later, found)


def test_victims_with_and_without_earlier_rounds_run_side_by_side():
    seen, _batch = two_rounds()
    later, attack = replace(seen, earlier=()), agic(steps=6, pre_steps=6)
    mixed = attack.reconstruct([later, seen, later], seed=1)
    lockstep = attack.reconstruct([later, later], seed=1)
    assert [one.joint is None for one in mixed] == [True, False, True]
    assert torch.equal(mixed[0].inputs, lockstep[0].inputs)
    assert torch.equal(mixed[2].inputs, lockstep[1].inputs)
    for one, found in zip((later, seen, later), mixed, strict=True):
        assert attack.evaluate(one, found) == found.loss


def test_only_the_joint_run_is_watched():
    seen, _batch = two_rounds()
    steps = []
    agic(steps=5, pre_steps=7).reconstruct(seen, watch=lambda step, images, distance: steps.append(step))
    assert steps == list(range(5))


def test_an_update_that_contradicts_itself_spoils_the_joint_result():
    seen, _batch = two_rounds()
    said = "the earlier update cannot be a gradient"
    odd = replace(seen.earlier[0], contradictions=(said,), notes=(*seen.earlier[0].notes, said))
    # One step explains nothing: only then does a contradiction count.
    attack = agic(steps=2, pre_steps=2, lr=1e-3)
    assert attack.reconstruct(seen, 3).status is Status.UNFINISHED
    found = attack.reconstruct(replace(seen, earlier=(odd,)), 3)
    assert found.status is Status.UNEXPLAINED
    assert found.notes.count(said) == 1
    assert any("contradicts" in note for note in found.notes)


def test_what_is_left_out_of_the_comparison_is_left_out_in_every_round():
    seen, _batch = two_rounds()
    attack = agic(steps=4, pre_steps=4)
    narrow = attack.revised(lambda recipe: replace(recipe, only=("0.weight", "2.weight")))
    found = narrow.reconstruct(seen, 1)
    assert narrow.evaluate(seen, found) == found.loss
    assert attack.evaluate(seen, found) != found.loss
    # What is not compared may be anything, in the earlier round too.
    first = seen.earlier[0]
    bias = {name: value + 1 if name == "0.bias" else value for name, value in first.update.tensors.items()}
    other = replace(seen, earlier=(replace(first, update=replace(first.update, tensors=bias)),))
    assert narrow.evaluate(other, found) == found.loss
    assert attack.evaluate(other, found) != attack.evaluate(seen, found)
