"""The defence that trains on transformed pictures: what it draws, what it refuses, and the attacker who knows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import leakscope as ls
from leakscope import registry
from leakscope.attacks.fc_inversion import fc_inversion
from leakscope.attacks.inverting_gradients import inverting_gradients
from leakscope.attacks.policy_aware import policy_aware
from leakscope.catalogue import check_spec
from leakscope.client import run_client
from leakscope.defences.chain import Chain
from leakscope.defences.transforms import NUMBER_OF_OPERATIONS, Policy, apply, transforms
from leakscope.defences.transforms.defence import crop_and_flip
from leakscope.errors import BadInputError, UsageError
from leakscope.matching.candidates import Alternatives, Transformed, known_chains
from leakscope.matching.distances import Cosine
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.problem import PlainRoute
from leakscope.matching.replays import OneGradient
from leakscope.metrics import score, score_trained
from leakscope.observation.observe import observe
from leakscope.operations import eight_bit
from leakscope.rng import generator, uniform
from leakscope.testing import check_defence, convolutional_problem, smallest_problem
from leakscope.types import Batch, LocalTraining, SharedUpdate, Status
from tiny import batch_of, dense, shared

HYBRID = "3-1-7+43-18-18"


def pictures(count: int = 6, side: int = 16, channels: int = 3, *, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    levels = (uniform((count, channels, side, side), generator(3, "pictures")) * 256).floor()
    return (levels.double() / 255).to(dtype)


def by_hand(numbers: list[int], images: torch.Tensor, signs: list[int]) -> torch.Tensor:
    """One picture through operations with the given signs."""
    levels = eight_bit.quantise(images)
    for entry, sign in zip(Policy((tuple(numbers),)).entries[0], signs, strict=True):
        amount = entry.amount * (sign if entry.signed else 1)
        levels = eight_bit.OPERATIONS[entry.name](levels, torch.tensor([amount], dtype=torch.float64))
    return (levels.double() / 255).to(images.dtype)


def outcomes(numbers: list[int], image: torch.Tensor) -> list[torch.Tensor]:
    signs = torch.cartesian_prod(*[torch.tensor([1, -1])] * len(numbers)).reshape(-1, len(numbers)).tolist()
    return [by_hand(numbers, image[None], row)[0] for row in signs]


def which(image: torch.Tensor, among: list[torch.Tensor]) -> int:
    (found,) = [place for place, one in enumerate(among) if torch.equal(image, one)]
    return found


def test_the_public_name_and_the_identity():
    images = uniform((2, 3, 8, 8), generator(0))
    assert torch.equal(ls.defences.transforms.apply("28-39", images, seed=0), images)
    assert ls.defences.transforms.apply("28-39", images) is not images
    assert NUMBER_OF_OPERATIONS == 50


def test_operations_come_in_order_with_a_sign_for_each_picture_and_slot():
    images = pictures(40)
    found = apply("3-1-7", images, seed=1)
    drawn = [which(one, outcomes([3, 1, 7], image)) for one, image in zip(found, images, strict=True)]
    # Forty pictures draw all eight outcomes: no coin is shared between pictures or slots.
    assert set(drawn) == set(range(8))


def test_coins_are_fair():
    images = pictures(2000, side=4, channels=1)
    # To the left is one sign, to the right the other.
    left = (apply("3", images, seed=0)[..., -1] == 0).all(-1).all(-1).double().mean()
    assert float(left) == pytest.approx(0.5, abs=0.04)


def test_an_operation_without_sign_is_the_same_for_all():
    images = pictures()
    assert torch.equal(apply("29", images, seed=5), apply("0", images, seed=9))
    torch.testing.assert_close(apply("29", images), 1 - images, rtol=0, atol=1e-6)


def test_the_same_seed_gives_the_same_and_another_another():
    images = pictures(16)
    assert torch.equal(apply(HYBRID, images, seed=3), apply(HYBRID, images, seed=3))
    assert not torch.equal(apply(HYBRID, images, seed=3), apply(HYBRID, images, seed=4))


def test_candidates_share_their_random_numbers_slot_by_slot():
    images = pictures(12)
    signs = []
    for policy in ("3", "3-15", "3-15-7", "28-3", "21"):
        found = apply(policy, images, rng=generator(7, "common"))
        signs.append([bool((one[..., -1] == 0).all()) for one in found])
    assert all(row == signs[0] for row in signs)
    assert len(set(signs[0])) == 2


def test_policies_that_do_the_same_give_the_same_pictures():
    images = pictures(12)
    for one, other in (("43-28-18", "24-18"), ("3+21", "21+3")):
        assert torch.equal(apply(one, images, seed=2), apply(other, images, seed=2))


def test_a_hybrid_draws_one_policy_for_every_picture_evenly():
    images = pictures(900, side=4, channels=1)
    found = apply("0+28+39", images, seed=0)
    inverted = (found == apply("0", images)).flatten(1).all(1)
    assert torch.equal(found[~inverted], images[~inverted])
    assert float(inverted.double().mean()) == pytest.approx(1 / 3, abs=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_pictures_keep_dtype_and_the_range(dtype):
    found = apply("3-15-9", pictures(dtype=dtype))
    assert found.dtype is dtype
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1


@pytest.mark.parametrize(
    ("images", "complaint"),
    [
        (torch.zeros(3, 8, 8), "pictures"),
        (torch.zeros(2, 5), "pictures"),
        (torch.zeros(1, 3, 8, 8, dtype=torch.long), "pictures"),
        (torch.full((1, 3, 8, 8), 3.0), "let the model normalise"),
        (torch.full((1, 3, 8, 8), float("nan")), "got nan"),
    ],
)
def test_what_is_no_picture_is_refused(images, complaint):
    with pytest.raises(BadInputError, match=complaint):
        apply("3", images)


@pytest.mark.parametrize("spec", [f"transforms:policy={HYBRID}", f"transforms:policy={HYBRID},augment=crop-flip"])
def test_a_hybrid_survives_the_spec_alone_and_in_a_chain(spec):
    check_spec("defence", spec)
    alone = registry.defence_from_spec(spec)
    assert alone == transforms(HYBRID, augment="crop-flip" if "crop" in spec else "none")
    check_spec("defence", f"{spec}+clip:norm=1")
    chained = registry.defence_from_spec(f"{spec}+clip:norm=1")
    assert isinstance(chained, Chain)
    assert [part.name for part in chained.parts] == ["transforms", "clip"]
    assert chained.parts[0] == alone


def test_one_operation_in_a_spec_is_a_policy():
    assert registry.defence_from_spec("transforms:policy=3") == transforms("3")


@pytest.mark.parametrize("spec", ["policy=50", "policy=3-50", "policy=-1", "policy=", "policy=x", "augment=mixup"])
def test_a_wrong_policy_or_augmentation_is_a_usage_error(spec):
    with pytest.raises(UsageError):
        registry.defence_from_spec(f"transforms:{spec}")


def test_at_the_identity_nothing_happens():
    model, batch = dense(), batch_of([1, 2])
    run = run_client(model, batch, defence=transforms("28-39"), seed=1)
    plain = shared(model, batch, seed=1)
    assert isinstance(run.update, SharedUpdate)
    assert all(torch.equal(value, run.update.tensors[name]) for name, value in plain.tensors.items())
    assert run.trained == ()
    attack = inverting_gradients(steps=5)
    assert transforms("28-39").adapt(attack) is attack
    assert transforms("28-39").strong_attacks == ()


def test_every_pass_draws_anew():
    model, batch = dense(), batch_of([1, 2, 3])
    local = LocalTraining(lr=0.01, steps=6, batch_size=3)
    run = run_client(model, batch, defence=transforms("15-7"), local=local, seed=1)
    assert len(run.trained) == 6
    for example in range(3):
        among = outcomes([15, 7], batch.inputs[example])
        drawn = {which(one.inputs[example], among) for one in run.trained}
        assert len(drawn) > 1


def test_crop_and_flip_come_before_the_policy_and_only_when_asked_for():
    images = pictures(300, side=8, channels=1).clamp_min(0.1)
    cut = crop_and_flip(images, generator(0))
    assert not torch.equal(cut, images)
    framed = torch.nn.functional.pad(images, (4, 4, 4, 4))
    seen = set()
    for one, frame in zip(cut, framed, strict=True):
        seen.update(_places(one, frame))
    assert {top for top, _, _ in seen} == {left for _, left, _ in seen} == set(range(9))
    assert {flipped for _, _, flipped in seen} == {False, True}
    # Inverted last: what the frame left black is white.
    hook = transforms("0", augment="crop-flip").hooks().batch
    assert hook is not None
    found = hook(Batch(images, torch.zeros(300, dtype=torch.long)), generator(0))
    torch.testing.assert_close(found.inputs, apply("0", cut), rtol=0, atol=1e-6)


def _places(one: torch.Tensor, frame: torch.Tensor) -> list[tuple[int, int, bool]]:
    found = []
    for top in range(9):
        for left in range(9):
            window = frame[:, top : top + 8, left : left + 8]
            found += [
                (top, left, flip) for flip in (False, True) if torch.equal(one, window.flip(-1) if flip else window)
            ]
    return found


@pytest.mark.parametrize("policy", ["3-1-7", HYBRID, "0", "21-15", "6-2"])
@pytest.mark.parametrize("problem", [smallest_problem, convolutional_problem], ids=["mlp", "convolutions"])
def test_the_contract_holds_on_both_problems(policy, problem):
    check_defence(transforms(policy), problem=problem())


def test_a_client_without_pictures_is_told():
    model = torch.nn.Sequential(torch.nn.Linear(5, 3))
    with pytest.raises(BadInputError, match="use a defence that acts on the update"):
        run_client(model, Batch(torch.rand(2, 5), torch.tensor([0, 1])), defence=transforms())


def test_the_attacker_who_knows_is_still_that_attack():
    attack = inverting_gradients(steps=7)
    knowing = transforms(HYBRID).adapt(attack)
    assert isinstance(knowing, GradientMatching)
    assert (knowing.name, knowing.effort, knowing.needs) == (attack.name, attack.effort, attack.needs)
    candidate = knowing.recipe.candidate
    assert isinstance(candidate, Alternatives)
    assert candidate.base == attack.recipe.candidate
    # Two signs of two shifts, and two of one.
    assert len(candidate.chains) == 4 + 2
    assert replace(knowing.recipe, candidate=attack.recipe.candidate, draws_anew=False) == attack.recipe
    assert transforms().adapt(fc_inversion()) == fc_inversion()


def test_a_second_search_of_the_same_attack_knows_the_policy_too():
    batch, model = moved(), smallest_problem().model
    run = run_client(model, batch, defence=transforms("3"), seed=2)
    seen = observe(model, run.update, scenario="A", truth=batch)
    knowing: Any = transforms("3").adapt(
        ls.get_attack("gias", prior="smooth", latent_steps=4, weight_steps=3, restarts=1)
    )
    found = knowing.reconstruct(seen)
    assert found.originals is not None
    assert knowing.evaluate(seen, found) == found.loss
    tuned = knowing._tuning(torch.zeros(2, 3)).recipe.candidate
    assert isinstance(tuned, Alternatives)
    assert tuned.chains == knowing.search.recipe.candidate.chains


def test_the_policy_aware_attack_keeps_its_own_idea_of_the_pictures():
    (spec,) = transforms(HYBRID).strong_attacks
    attack = registry.attack_from_spec(spec)
    assert attack == policy_aware(policy=HYBRID)
    assert transforms(HYBRID).adapt(attack) == attack
    with pytest.raises(UsageError, match="no operation 50"):
        policy_aware(policy="3-50")


@pytest.mark.parametrize(("across", "down"), [(3, 0), (-2, 5), (0, -4)])
def test_at_the_truth_and_the_true_shift_the_loss_is_that_of_what_was_trained_on(across, down):
    """Black padding, whole pixels: the attacker's model of the client is the client."""
    clean = pictures(1, side=6, channels=1, dtype=torch.float64)
    levels = eight_bit.quantise(clean)
    for name, amount in (("translate-x", across / 6), ("translate-y", down / 6)):
        levels = eight_bit.OPERATIONS[name](levels, torch.tensor([amount], dtype=torch.float64))
    trained = levels.double() / 255
    seen = observe(
        dense(),
        shared(dense(), Batch(trained, torch.tensor([1]))),
        scenario="A",
        truth=Batch(trained, torch.tensor([1])),
    )
    candidate = Transformed(
        tuple(_at(name, amount) for name, amount in (("translate-x", across / 6), ("translate-y", down / 6)))
    )
    begin = candidate.start(seen, 1, generator(0))
    variables = {name: value[None] for name, value in begin.items()} | {"inputs": clean[None]}
    decoded = candidate.decode(seen, variables)[0]
    torch.testing.assert_close(decoded, trained, rtol=0, atol=1e-9)
    target = {name: value[None] for name, value in seen.update.tensors.items()}
    route = PlainRoute(seen, OneGradient(), Cosine())
    losses = [
        float(route.distance_at(x, torch.tensor([1]), target, create_graph=False)) for x in (decoded, trained, clean)
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert losses[2] > losses[1] + 1e-3


def _at(name: str, amount: float):
    (transform,) = [
        item for chain in known_chains(Policy.parse("3" if name == "translate-x" else "7")) for item in chain
    ][:1]
    assert transform.name == name
    return replace(transform, start=(amount,), low=(amount,), high=(amount,))


def moved(side: int = 8) -> Batch:
    rows = torch.linspace(0, 1, side)
    waves = [0.5 + 0.4 * torch.sin(5 * rows[:, None] + k) * torch.cos(4 * rows[None, :] - k) for k in range(2)]
    return Batch(torch.stack(waves)[:, None], torch.tensor([0, 2]))


@pytest.mark.parametrize("policy", ["3-7", "3+7"])
def test_who_knows_the_policy_finds_what_was_drawn_and_gets_more_of_the_original(policy):
    batch = moved()
    model = smallest_problem().model
    defence = transforms(policy)
    run = run_client(model, batch, defence=defence, seed=2)
    seen = observe(model, run.update, scenario="A", truth=batch)
    attack = inverting_gradients(steps=150)
    naive, knowing = attack.reconstruct(seen), defence.adapt(attack).reconstruct(seen)
    assert knowing.status is Status.OK
    assert naive.originals is None
    assert knowing.originals is not None
    assert knowing.evaluations == naive.evaluations
    undone = replace(knowing, inputs=knowing.originals)
    assert float(score(undone, batch).psnr.min()) > float(score(naive, batch).psnr.min()) + 1.5
    assert float(score_trained(knowing, batch, run.trained).psnr.min()) > 25
    again = defence.adapt(attack)
    assert again.evaluate(seen, knowing) == knowing.loss


def test_an_audit_scores_both_truths_and_runs_the_policy_aware_attack_too():
    problem = smallest_problem()
    result = ls.audit(
        problem.model,
        problem.batch,
        inverting_gradients(steps=60),
        defence=transforms("3"),
        adaptive=True,
        scenario="A",
    )
    assert result.scores is not None
    assert result.trained_scores is not None
    assert float(result.trained_scores.psnr) > float(result.scores.psnr) + 5
    assert [other.attack for other in result.also] == ["policy-aware"]


def test_a_hybrid_of_two_examples_is_told_apart_by_probing():
    batch = moved()
    model = smallest_problem().model
    run = run_client(model, batch, defence=transforms("3+7"), seed=2)
    seen = observe(model, run.update, scenario="A", truth=batch)
    attack = policy_aware(policy="3+7", steps=60, probe=20)
    found = attack.reconstruct(seen)
    assert found.status is Status.OK
    assert attack.evaluate(seen, found) == found.loss
    assert found.notes[-2].startswith("4 sign hypotheses")
    assert "single signs and policies of 2 examples" in found.notes[-1]
    assert float(score_trained(found, batch, run.trained).psnr.min()) > 15
