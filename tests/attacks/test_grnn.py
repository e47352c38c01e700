from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from leakscope.attack import Effort
from leakscope.attacks.grnn import SquaredVariation, grnn
from leakscope.attacks.grnn_refined import refined_grnn
from leakscope.audits.cell import run_cell
from leakscope.errors import UnsuitableError, UsageError
from leakscope.matching.candidates import TwoBranchGenerator
from leakscope.matching.distances import SquaredPlusNorm, Wasserstein
from leakscope.matching.optimisers import RMSprop, falling_late
from leakscope.matching.penalties import TotalVariation, Trial
from leakscope.metrics import guess_baseline, score
from leakscope.models import build
from leakscope.rng import generator, normal_like
from leakscope.testing import smallest_problem
from leakscope.types import Batch, Status
from tiny import batch_of, seen_of


def test_the_paper_schedule_has_the_published_settings():
    attack = grnn(schedule="paper")
    assert attack.recipe.candidate == TwoBranchGenerator(latent=128, width=32)
    assert attack.recipe.distance == SquaredPlusNorm()
    assert attack.recipe.optimiser == RMSprop(lr=1e-4, momentum=0.99)
    assert (attack.steps, attack.recipe.penalties) == (1_000, (SquaredVariation(1e-3),))
    assert attack.needs == frozenset()


def test_the_default_is_narrower_faster_and_smooths_more():
    attack = grnn()
    assert attack.recipe.candidate == TwoBranchGenerator(latent=128, width=16)
    assert attack.recipe.optimiser == RMSprop(lr=1e-3, momentum=0.99, schedule=falling_late)
    assert attack.recipe.penalties == (TotalVariation(0.3),)
    assert [falling_late(step, 100) for step in (0, 50, 75)] == [1.0, 1.0, 0.5]
    assert grnn(tv=0.0).recipe.penalties == ()


def test_unknown_options_are_refused_by_name():
    assert grnn(distance="wasserstein").recipe.distance == Wasserstein()
    assert grnn(distance="squared+wasserstein").recipe.distance == Wasserstein(squared=True)
    with pytest.raises(UsageError, match=r"unknown distance 'wassersten'\. Did you mean 'wasserstein'"):
        grnn(distance="wassersten")
    with pytest.raises(UsageError, match="'accelerated' or 'paper', got 'fast'"):
        grnn(schedule="fast")


def test_the_published_smoothness_is_twice_the_mean_squared_difference_per_direction():
    images = torch.tensor([[0.0, 1.0], [0.0, 3.0]]).reshape(1, 1, 1, 2, 2)
    trial = Trial(images, images, torch.zeros(1, 1), torch.nn.Identity())
    # Across: 1 and 3, mean of squares 5. Down: 0 and 2, mean of squares 2.
    assert float(SquaredVariation(1.0).value(trial)) == pytest.approx(2 * (5 + 2))


def test_image_and_label_come_from_the_update_alone():
    problem = smallest_problem()
    seen = seen_of(problem.model, problem.batch, scenario="E")
    found = grnn(steps=100, width=8).reconstruct(seen, seed=1)
    assert found.status is Status.OK
    assert found.target_probabilities is not None
    scores = score(found, problem.batch)
    assert float(scores.psnr) > float(guess_baseline(problem.batch)) + 6
    assert bool(scores.label_correct.all())
    assert grnn(steps=100, width=8).evaluate(seen, found) == found.loss


def test_the_sorted_distance_alone_does_not_find_the_image():
    problem = smallest_problem()
    seen = seen_of(problem.model, problem.batch, scenario="C")
    quality = {
        distance: float(score(grnn(steps=100, width=8, distance=distance).reconstruct(seen, 1), problem.batch).psnr)
        for distance in ("squared+norm", "wasserstein")
    }
    assert quality["wasserstein"] < quality["squared+norm"] - 6


def test_a_batch_is_rebuilt_from_one_generator_and_its_loss_is_that_of_the_result():
    batch = batch_of([0, 3], shape=(1, 8, 8), dtype=torch.float32)
    model = build("mlp", num_classes=4, in_channels=1, image_size=8, hidden=[64], activation="sigmoid", seed=1)
    seen = seen_of(model, batch, scenario="C")
    attack = grnn(steps=120, width=8)
    found = attack.reconstruct(seen, seed=0)
    assert found.inputs.shape == (2, 1, 8, 8)
    assert found.loss < 0.05 * found.history[0]
    # So narrow a generator matches hardly better than unrelated pictures with the right labels would.
    assert found.fit.explained - found.fit.unrelated < 0.5 * (1 - found.fit.unrelated)
    assert found.status is Status.UNEXPLAINED
    assert attack.evaluate(seen, found) == found.loss
    assert sorted(found.targets.tolist()) == [0, 3]


def test_victims_in_lockstep_get_generators_of_their_own():
    problem = smallest_problem()
    other = replace(problem.batch, inputs=1 - problem.batch.inputs, targets=torch.tensor([0]))
    result = run_cell(problem.model, [problem.batch, other], grnn(steps=100, width=8), scenario="C", seed=3)
    assert result.scores is not None
    assert result.baseline_psnr is not None
    assert bool(result.scores.label_correct.all())
    assert bool((result.scores.psnr > result.baseline_psnr + 6).all())


@pytest.mark.slow
def test_a_residual_network_with_batch_statistics_is_taken_on():
    model = build("resnet18-grnn", num_classes=10, image_size=32, seed=0).train()
    batch = batch_of([7], shape=(3, 32, 32), dtype=torch.float32)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = grnn(steps=2, tv=1e-6, schedule="paper").reconstruct(seen_of(model, batch, scenario="C"), seed=0)
    assert found.inputs.shape == batch.inputs.shape
    assert len(found.history) == 2
    assert all(torch.isfinite(torch.tensor(found.history)))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_images_of_28_pixels_are_refused_before_any_compute():
    model = build("lenet-dlg", num_classes=4, in_channels=1, image_size=28)
    batch = batch_of([1], shape=(1, 28, 28), dtype=torch.float32)
    with pytest.raises(UnsuitableError, match="got 28×28; resize to 16 or 32"):
        grnn(steps=1).reconstruct(seen_of(model, batch, scenario="C"))


def test_refining_reads_the_picture_through_the_pooling_and_keeps_the_generated_label():
    model = build("lenet-grnn", num_classes=4, in_channels=1, image_size=16, seed=0)
    place = torch.linspace(0, 1, 16)
    picture = 0.5 + 0.4 * torch.sin(5 * place[:, None]) * torch.cos(4 * place[None, :])
    batch = Batch(picture[None, None], torch.tensor([2]))
    seen = seen_of(model, batch, scenario="C")
    attack = refined_grnn(steps=60, passes=8)
    rough, found = attack.search.reconstruct(seen, seed=1), attack.reconstruct(seen, seed=1)
    assert "refined: read backwards through the max pooling" in found.notes
    assert attack.evaluate(seen, found) == found.loss < rough.loss
    assert found.history == (*rough.history, found.loss)
    assert found.targets.tolist() == [2]
    assert float(score(found, batch).psnr) > max(30.0, float(score(rough, batch).psnr) + 6)


def test_where_nothing_is_pooled_the_generators_picture_stays_and_a_note_says_why():
    problem = smallest_problem()
    seen = seen_of(problem.model, problem.batch, scenario="C")
    attack = refined_grnn(steps=30)
    rough, found = attack.search.reconstruct(seen, seed=1), attack.reconstruct(seen, seed=1)
    assert torch.equal(found.inputs, rough.inputs)
    assert any(note.startswith("not refined: reading through max pooling needs blocks") for note in found.notes)
    assert attack.with_effort(Effort(7)).effort == Effort(7, None, 1, 7)
    assert attack.with_effort(Effort(7)) == refined_grnn(steps=7)
    with pytest.raises(UsageError, match="passes ≥ 1, got 0"):
        refined_grnn(passes=0)


def test_under_noise_that_the_features_betray_the_generators_picture_stays():
    model = build("lenet-grnn", num_classes=4, in_channels=1, image_size=16, seed=0)
    seen = seen_of(model, batch_of([1], shape=(1, 16, 16), dtype=torch.float32), scenario="C")
    rng = generator(0, "noise")
    noisy = {name: value + 0.01 * normal_like(value, rng) for name, value in seen.update.tensors.items()}
    seen = replace(seen, update=replace(seen.update, tensors=noisy))
    attack = refined_grnn(steps=20, passes=3)
    rough, found = attack.search.reconstruct(seen, seed=1), attack.reconstruct(seen, seed=1, diagnosing=False)
    assert torch.equal(found.inputs, rough.inputs)
    assert found.loss == rough.loss
    assert any(note.startswith("not refined: the features read off the linear layer") for note in found.notes)


def test_a_reading_that_explains_the_update_worse_is_not_returned(monkeypatch):
    model = build("lenet-grnn", num_classes=4, in_channels=1, image_size=16, seed=0)
    seen = seen_of(model, batch_of([1], shape=(1, 16, 16), dtype=torch.float32), scenario="C")
    shares = []

    def black(seen, seed, *, passes, gradient_from):
        shares.append(gradient_from)
        return torch.zeros(1, 1, 16, 16)

    monkeypatch.setattr("leakscope.attacks.grnn_refined.read_pooled", black)
    attack = refined_grnn(steps=40)
    rough, found = (one.reconstruct(seen, seed=1, diagnosing=False) for one in (attack.search, attack))
    assert shares == [0.2, 0.5]
    assert torch.equal(found.inputs, rough.inputs)
    assert any("came to worse matches" in note for note in found.notes)
