from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

import pytest
import torch

from leakscope import registry
from leakscope.attack import Effort
from leakscope.attacks.dlg import dlg_adam
from leakscope.client import share
from leakscope.defences.clip import clip
from leakscope.defences.noise import gaussian_noise, laplacian_noise
from leakscope.defences.prune import prune
from leakscope.errors import KnowledgeError, UnsuitableError, UsageError
from leakscope.matching import problem
from leakscope.matching.candidates import Pixels
from leakscope.matching.distances import Cosine, Denoised, Direction, Masked, Shortened, SquaredL2
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.labels import Inferred, Soft
from leakscope.matching.optimisers import LBFGS, Adam, Optimiser
from leakscope.matching.penalties import TotalVariation
from leakscope.matching.problem import lockstep_chunks
from leakscope.matching.recipe import Recipe
from leakscope.matching.replays import AsKnown, LocalSteps
from leakscope.metrics import score
from leakscope.networks import freeze
from leakscope.observation.observe import observe, observe_many
from leakscope.testing import smallest_problem
from leakscope.types import LocalTraining, Status
from tiny import batch_of, convolutional, dense, seen_of, shared

BASE = GradientMatching(
    name="base",
    paper="none",
    recipe=Recipe(
        labels=Inferred(),
        candidate=Pixels(),
        replay=AsKnown(),
        distance=SquaredL2(),
        optimiser=Adam(lr=0.05),
    ),
    steps=15,
)


def revised(**axes):
    return BASE.revised(lambda recipe: replace(recipe, **axes))


def victims_of(model, batches, *, scenario="A"):
    frozen, notes = freeze(model)
    updates = [shared(model, batch) for batch in batches]
    return observe_many(frozen, updates, scenario=scenario, truths=batches, notes=notes)


SETTINGS = {
    "one image": lambda: seen_of(dense(), batch_of([2])),
    "three images": lambda: seen_of(dense(), batch_of([2, 0, 2])),
    "convolution, float64": lambda: seen_of(convolutional(), batch_of([2, 1])),
    "convolution, float32": lambda: seen_of(convolutional().float(), batch_of([2, 1], dtype=torch.float32)),
    "batch statistics": lambda: seen_of(convolutional(norm=True).train(), batch_of([2, 1])),
    "local steps": lambda: seen_of(dense(), batch_of([2, 0]), local=LocalTraining(lr=0.1, steps=3)),
    "unknown rate": lambda: seen_of(dense(), batch_of([2]), scenario="D", local=LocalTraining(lr=0.1, steps=3)),
}
ATTACKS = {
    "l2": BASE,
    "cosine, restarts": replace(revised(distance=Cosine()), restarts=3),
    "soft labels": revised(labels=Soft()),
    "masked": prune(0.5).adapt(BASE),
    "clipped": clip(1.0).adapt(BASE),
    "denoised": gaussian_noise(1e-3).adapt(BASE),
}


@pytest.mark.parametrize("make", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_stored_loss_is_exactly_the_loss_of_what_is_returned(attack, make):
    seen = make()
    found = attack.reconstruct(seen, seed=1)
    assert found.loss == attack.evaluate(seen, found)
    assert len(found.history) == found.evaluations == 15
    assert found.inputs.dtype == seen.dtype
    assert not found.inputs.requires_grad


def test_the_same_seed_gives_the_same_bytes_and_another_seed_another_start():
    seen = seen_of(dense(), batch_of([2]))
    first, again, other = (BASE.reconstruct(seen, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.inputs, again.inputs)
    assert (first.loss, first.history) == (again.loss, again.history)
    assert first.history[0] != other.history[0]


def test_restarts_differ_and_the_lowest_distance_is_returned():
    seen = seen_of(dense(), batch_of([2]))
    pairs = [
        (replace(BASE, restarts=4).reconstruct(seen, seed=seed), BASE.reconstruct(seen, seed=seed)) for seed in range(4)
    ]
    assert all(many.loss <= one.loss * (1 + 1e-6) for many, one in pairs)
    assert any(many.loss < 0.9 * one.loss for many, one in pairs)
    assert all(many.evaluations == one.evaluations for many, one in pairs)


def test_victims_start_from_different_noise_even_where_their_updates_are_equal():
    first, second = BASE.reconstruct(victims_of(dense(), [batch_of([2]), batch_of([2])]))
    assert first.history[0] != second.history[0]


def test_victims_in_lockstep_are_each_as_if_alone(monkeypatch):
    seen = victims_of(dense(), [batch_of([label], seed=label) for label in (0, 3, 1)])
    attack = replace(BASE, restarts=2)
    together = attack.reconstruct(seen, seed=4)
    # With room for one victim at a time each runs alone, from the same noise.
    monkeypatch.setattr(problem, "LOCKSTEP_BYTES", 1)
    alone = attack.reconstruct(seen, seed=4)
    for left, right in zip(together, alone, strict=True):
        torch.testing.assert_close(left.inputs, right.inputs, rtol=1e-5, atol=1e-6)
        assert left.loss == pytest.approx(right.loss, rel=1e-6)


def test_victims_that_do_not_fit_together_keep_their_places():
    sizes = [[1], [2, 0], [3]]
    seen = victims_of(dense(), [batch_of(labels, seed=len(labels)) for labels in sizes])
    found = BASE.reconstruct(seen, seed=0)
    assert [one.targets.tolist() for one in found] == sizes
    assert [len(one.inputs) for one in found] == [1, 2, 1]


def test_victims_with_other_bounds_or_losses_are_not_run_together():
    first, second = victims_of(dense(), [batch_of([1]), batch_of([2])])
    wide, halved = replace(second, bounds=(-1.0, 2.0)), replace(second, loss=lambda o, t: 0.5 * first.loss(o, t))
    chunks = lockstep_chunks([first, second, wide, halved], [1, 1, 1, 1], 1)
    assert chunks == [[0, 1], [2], [3]]


@dataclass(frozen=True)
class DiesFirst(Optimiser):
    """Diverges in its first run and works afterwards."""

    inner: Adam
    runs: list

    def states(self, evaluate, start, *, steps, project):
        self.runs.append(None)
        rate = 1e-12 if len(self.runs) == 1 else self.inner.lr
        return replace(self.inner, lr=rate).states(evaluate, start, steps=steps, project=project)


def test_a_diverged_run_is_tried_again_as_often_as_allowed():
    seen = seen_of(dense(), batch_of([2]))
    stuck = revised(optimiser=DiesFirst(Adam(lr=0.05), []))
    assert stuck.reconstruct(seen).status is Status.DIVERGED
    retried = replace(revised(optimiser=DiesFirst(Adam(lr=0.05), [])), retries=2).reconstruct(seen)
    assert retried.status is Status.UNFINISHED  # fifteen steps
    assert retried.evaluations == 30


def test_what_is_granted_beats_what_the_attack_assumes():
    assuming = replace(BASE, num_examples=3)
    assert len(assuming.reconstruct(seen_of(dense(), batch_of([2]), scenario="A")).inputs) == 1
    assert len(assuming.reconstruct(seen_of(dense(), batch_of([2]), scenario="E")).inputs) == 3


def test_a_replay_of_local_steps_is_refused_where_rate_and_steps_are_unknown():
    seen = seen_of(dense(), batch_of([2]), scenario="D", local=LocalTraining(lr=0.1, steps=3))
    with pytest.raises(KnowledgeError, match="learning rate"):
        revised(replay=LocalSteps()).reconstruct(seen)


def test_a_defence_changes_the_axis_it_concerns_and_nothing_else():
    pruned, clipped, noisy = (defence.adapt(BASE) for defence in (prune(0.9), clip(1.0), gaussian_noise(0.5)))
    assert pruned == revised(distance=Masked(SquaredL2()))
    assert clipped == revised(distance=Shortened(SquaredL2()))
    assert noisy == revised(noise=0.25, joins_rounds=True)
    assert laplacian_noise(0.5).adapt(BASE) == revised(noise=0.5, joins_rounds=True)
    assert clip(1.0).adapt(pruned) == revised(distance=Shortened(Masked(SquaredL2())))
    assert gaussian_noise(0.1).adapt(noisy) == revised(noise=0.25 + 0.1**2, joins_rounds=True), (
        "independent variances add up"
    )
    assert prune(0.0).adapt(BASE) == BASE == gaussian_noise(0.0).adapt(BASE)
    for attack in (pruned, clipped, noisy):
        assert pickle.loads(pickle.dumps(attack)) == attack


@pytest.mark.parametrize("defence", [gaussian_noise(0.1), laplacian_noise(0.1)], ids=lambda one: one.name)
def test_the_strong_attack_against_noise_leans_on_total_variation(defence):
    (spec,) = defence.strong_attacks
    knowing = defence.adapt(registry.attack_from_spec(spec))
    assert isinstance(knowing, GradientMatching)
    assert knowing.recipe.penalties == (TotalVariation(1.0, relative=True),)
    assert knowing.recipe.noise > 0
    assert type(defence)(0.1) == defence, "the strong attacks belong to the class, not to the value"


def test_noise_is_weighed_outermost_and_in_the_units_of_the_replay():
    local = LocalTraining(lr=0.1, steps=3)
    recipe = replace(BASE.recipe, noise=0.04)
    noisy = recipe.distance_to(seen_of(dense(), batch_of([2])))
    assert noisy == Denoised(SquaredL2(), 0.04)
    masked = replace(recipe, distance=recipe.distance.masked())
    assert masked.distance_to(seen_of(dense(), batch_of([2]))) == Denoised(Masked(SquaredL2()), 0.04)
    known = recipe.distance_to(seen_of(dense(), batch_of([2]), local=local))
    assert known == Denoised(SquaredL2(), pytest.approx(0.04 / 0.3**2))
    unknown = recipe.distance_to(seen_of(dense(), batch_of([2]), scenario="D", local=local))
    assert unknown == Denoised(Direction(SquaredL2()), 0.04)
    assert BASE.recipe.distance_to(seen_of(dense(), batch_of([2]))) == SquaredL2()


def test_only_the_named_tensors_are_matched_and_labels_still_come_from_all():
    seen = seen_of(dense(), batch_of([2]), scenario="C")
    first = next(iter(seen.update.tensors))
    found = revised(only=(first,)).reconstruct(seen)
    assert found.loss == revised(only=(first,)).evaluate(seen, found)
    assert found.loss != revised(only=None).evaluate(seen, found)
    assert found.targets.tolist() == [2], "the label is read off the last layer, which is not matched"
    other = {name: value if name == first else torch.rand_like(value) for name, value in seen.update.tensors.items()}
    changed = replace(seen, update=replace(seen.update, tensors=other), targets=torch.tensor([2]))
    again = revised(only=(first,)).reconstruct(changed)
    assert torch.equal(again.inputs, found.inputs), "tensors that are not matched change nothing"
    with pytest.raises(UnsuitableError, match="'nowhere' is to be matched but was not shared"):
        revised(only=("nowhere",)).reconstruct(seen)


def test_effort_says_what_a_run_costs_and_can_be_changed():
    attack = replace(revised(optimiser=LBFGS(inner=20)), retries=2, restarts=3)
    assert attack.effort == Effort(15, 3, 3, 300)
    assert attack.with_effort(attack.effort) == attack
    assert attack.with_effort(Effort(7, attempts=3)) == replace(attack, steps=7)
    assert attack.with_effort(Effort(restarts=2)) == replace(attack, restarts=2, retries=0)
    with pytest.raises(UsageError, match="steps ≥ 1"):
        attack.with_effort(Effort(0))


def test_the_variables_behind_a_reconstruction_come_with_it():
    seen = seen_of(dense(), batch_of([2]))
    attack = replace(BASE, restarts=3)
    (found,) = attack.find([seen], 1)
    decoded = BASE.recipe.candidate.decode(seen, {name: value[None] for name, value in found.variables.items()})
    assert torch.equal(decoded[0], attack.reconstruct(seen, seed=1).inputs)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"steps": 1.5}, {"restarts": 0}, {"retries": -1}])
def test_numbers_that_cannot_run_are_refused(wrong):
    with pytest.raises(UsageError, match="needs a whole number"):
        replace(BASE, **wrong)


@pytest.mark.parametrize("name", ["inverting-gradients", "adam-cosine", "dlg-adam"])
def test_inputs_that_are_not_images_can_be_attacked(name):
    model = torch.nn.Sequential(torch.nn.Linear(20, 12), torch.nn.Sigmoid(), torch.nn.Linear(12, 3)).double()
    seen = seen_of(model, batch_of([1], shape=(20,)))
    found = registry.get_attack(name, steps=10).reconstruct(seen)
    assert found.inputs.shape == (1, 20)
    assert found.loss < found.history[0]


def test_a_callers_no_grad_does_not_matter():
    seen = seen_of(dense(), batch_of([2]))
    with torch.no_grad():
        inside = BASE.reconstruct(seen)
    assert torch.equal(inside.inputs, BASE.reconstruct(seen).inputs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_reconstructions_stay_on_the_observations_device():
    seen = seen_of(dense().cuda(), batch_of([2]).to("cuda"))
    found = BASE.reconstruct(seen)
    assert found.inputs.device.type == "cuda"
    assert found.loss == BASE.evaluate(seen, found)


@pytest.mark.parametrize("lr", [1e-4, 1e-1])
def test_a_delta_of_unknown_rate_is_matched_by_its_direction(lr: float) -> None:
    problem = smallest_problem()
    update = share(problem.model, problem.batch, local=LocalTraining(lr=lr))
    seen = observe(problem.model, update, scenario="D", truth=problem.batch)
    found = dlg_adam(steps=400).reconstruct(seen, seed=0)
    assert float(score(found, problem.batch).psnr) > 30
    assert dlg_adam(steps=400).evaluate(seen, found) == found.loss
