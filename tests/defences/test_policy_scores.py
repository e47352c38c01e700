"""The two scores of a policy, as released and as in the papers: their formulas, invariances and ceilings."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from leakscope.defences.transforms import accuracy_score as accuracy
from leakscope.defences.transforms import gradient_products
from leakscope.defences.transforms.accuracy_score import (
    accuracy_batches,
    distinct_labels,
    is_accepted,
    jacobian_rows,
    score_rows,
)
from leakscope.defences.transforms.policy import apply
from leakscope.defences.transforms.privacy_score import integrate, privacy_scores, similarities
from leakscope.errors import UsageError
from leakscope.rng import generator, normal, uniform
from leakscope.types import Batch
from tiny import batch_of, convolutional

VARIANTS = ("released", "paper")


def path_by_hand(model: nn.Module, start: torch.Tensor, end: torch.Tensor, target: torch.Tensor) -> list[list]:
    """Gradients of every tensor at 21 points, each by its own backward pass."""
    model.eval()
    found = []
    for place in range(21):
        point = start + place / 20 * (end - start)
        loss = functional.cross_entropy(model(point), target[None])
        found.append([one.flatten() for one in torch.autograd.grad(loss, list(model.parameters()))])
    return found


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(one @ other / (one.norm() * other.norm()))


@pytest.fixture
def line() -> tuple[nn.Module, torch.Tensor, torch.Tensor, torch.Tensor]:
    model, batch = convolutional(norm=True), batch_of([2])
    return model, uniform((1, 1, 6, 6), generator(9), like=batch.inputs), batch.inputs, batch.targets[0]


def test_released_is_the_mean_of_the_tensors_cosines_by_trapezoids(line):
    model, start, end, target = line
    rows = path_by_hand(model, start, end, target)
    sims = [np.mean([cosine(one, last) for one, last in zip(row, rows[-1], strict=True)]) for row in rows]
    expected = sum((sims[i] + sims[i + 1]) / 2 for i in range(20)) / 20
    path = similarities(model, start, end, target=target, variant="released")
    assert path.tolist() == pytest.approx(sims, abs=1e-9)
    assert float(integrate(path, "released")) == pytest.approx(expected, abs=1e-9)


def test_paper_is_the_cosine_of_the_whole_gradient_by_a_left_sum(line):
    model, start, end, target = line
    rows = [torch.cat(row) for row in path_by_hand(model, start, end, target)]
    sims = [cosine(row, rows[-1]) for row in rows]
    path = similarities(model, start, end, target=target, variant="paper")
    assert path.tolist() == pytest.approx(sims, abs=1e-9)
    assert float(integrate(path, "paper")) == pytest.approx(sum(sims[:20]) / 20, abs=1e-9)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_coarse_score_takes_every_fifth_point_and_estimates_the_same_sum(line, variant):
    model, _, end, target = line
    batch = Batch(end, target[None])
    moved = apply("28", end, rng=generator(0, "search", "coins", 0))
    start = uniform((1, 1, 6, 6), generator(0, "search", "noise", 0), like=end)
    path = similarities(model, start, moved, target=target, variant=variant)
    every = path[[0, 5, 10, 15, 20]].tolist()
    expected = (every[0] / 2 + sum(every[1:4]) + every[4] / 2) / 4
    # A left sum of 20 bins lacks half of the first value, a fortieth, and has half of the last too little.
    expected += (every[0] - every[4]) / 40 if variant == "paper" else 0
    full, coarse = (float(privacy_scores("28", batch, model=model, variant=variant, every=n)[0]) for n in (1, 5))
    assert coarse == pytest.approx(expected, abs=1e-9)
    assert full == pytest.approx(float(integrate(path, variant)), abs=1e-9)
    assert coarse == pytest.approx(full, abs=0.02)
    with pytest.raises(UsageError, match="points 0, 3, … of 20 bins would leave out the last"):
        privacy_scores("28", batch, model=model, every=3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_points_in_one_pass_give_the_same(line, monkeypatch, variant):
    model, start, end, target = line
    together = similarities(model, start, end, target=target, variant=variant)
    monkeypatch.setattr(gradient_products, "_LARGE_NETWORK", 0)
    apart = similarities(model, start, end, target=target, variant=variant)
    assert apart.tolist() == pytest.approx(together.tolist(), abs=1e-12)


def test_the_variants_differ_because_small_tensors_weigh_as_much_as_large_ones(line):
    model, start, end, target = line
    found = [float(integrate(similarities(model, start, end, target=target, variant=one), one)) for one in VARIANTS]
    assert abs(found[0] - found[1]) > 1e-3


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_picture_against_itself_scores_one(line, variant):
    model, _start, end, target = line
    path = similarities(model, end, end, target=target, variant=variant)
    assert float(integrate(path, variant)) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("factor", [0.5, 1e-12, 1e9])
def test_the_scale_of_the_loss_is_irrelevant(variant, factor):
    model, batch = convolutional(), batch_of([0, 1])

    def scaled(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return factor * functional.cross_entropy(output, targets)

    plain = privacy_scores("3-1-7", batch, model=model, variant=variant)
    assert privacy_scores("3-1-7", batch, model=model, variant=variant, loss=scaled).tolist() == pytest.approx(
        plain.tolist(), abs=1e-9
    )


def test_dead_tensors_are_left_out_and_a_network_of_them_leaks_nothing_new(line):
    model, start, end, target = line
    with torch.no_grad():
        model[-1].weight.zero_()
    # Only the last layer has a gradient now.
    rows = path_by_hand(model, start, end, target)
    sims = [np.mean([cosine(row[i], rows[-1][i]) for i in (-2, -1)]) for row in rows]
    assert similarities(model, start, end, target=target).tolist() == pytest.approx(sims, abs=1e-9)


def test_scores_are_of_the_transformed_picture_from_noise_in_pixel_space():
    model, batch = convolutional(), batch_of([0, 1, 2])
    found = privacy_scores("3-1-7", batch, model=model, seed=4)
    end = apply("3-1-7", batch.inputs[1:2], rng=generator(4, "search", "coins", 1))
    start = uniform((1, 1, 6, 6), generator(4, "search", "noise", 1), like=end)
    path = similarities(model, start, end, target=batch.targets[1])
    assert float(found[1]) == pytest.approx(float(integrate(path, "released")), abs=1e-12)
    assert not torch.equal(end, batch.inputs[1:2])


def test_a_picture_keeps_its_draw_in_other_company_and_every_policy_gets_the_same():
    model, batch = convolutional(), batch_of([0, 1, 2])
    found = privacy_scores("24-1", batch, model=model, seed=1)
    alone = privacy_scores("24-1", Batch(batch.inputs[2:], batch.targets[2:]), model=model, seed=1, places=[2])
    assert alone.tolist() == found[2:].tolist()
    assert privacy_scores("43-28-1", batch, model=model, seed=1).tolist() == found.tolist()
    assert privacy_scores("24-1", batch, model=model, seed=2).tolist() != found.tolist()


def test_the_model_is_scored_in_evaluation_mode_and_left_as_it_was():
    model, batch = convolutional(norm=True), batch_of([0, 1])
    found = privacy_scores("1", batch, model=model.eval())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    model[1].eval()
    assert privacy_scores("1", batch, model=model).tolist() == found.tolist()
    rows = jacobian_rows(model, batch.inputs)
    assert torch.equal(rows, jacobian_rows(model.eval(), batch.inputs))
    assert [module.training for module in model.train()] == [True] * len(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(value.grad is None for value in model.parameters())


@pytest.mark.parametrize("count", [2, 10, 63])
def test_rows_that_are_not_correlated_reach_the_ceiling(count):
    # Rows of a Fourier matrix: mean 0, orthogonal.
    places = torch.arange(256, dtype=torch.float64)
    rows = torch.stack([torch.cos(2 * math.pi * k * places / 256) for k in range(1, count + 1)])
    assert float(score_rows(rows)) == pytest.approx(-count, rel=2e-5)
    assert float(score_rows(rows, "paper")) == pytest.approx(1, rel=2e-5)
    mixed = rows + 0.3 * normal((count, 256), generator(0)).double()
    assert float(score_rows(mixed)) < float(score_rows(rows))
    assert float(score_rows(mixed, "paper")) > float(score_rows(rows, "paper"))


def test_the_score_of_rows_is_that_of_numpy():
    rows = normal((7, 40), generator(5)).double()
    rows[3] += rows[2]
    values = np.linalg.eigvalsh(np.corrcoef(rows.numpy())) + 1e-5
    terms = np.log(values) + 1 / values
    assert float(score_rows(rows)) == pytest.approx(-terms.sum(), rel=1e-9)
    assert float(score_rows(rows, "paper")) == pytest.approx(terms.sum() / 7, rel=1e-9)
    # Scale and offset of a row play no part in correlations.
    assert float(score_rows(3 * rows + 2)) == pytest.approx(-terms.sum(), rel=1e-9)


def test_equal_rows_and_rows_without_variation_are_costly():
    row = normal((1, 40), generator(5)).double()
    both = score_rows(torch.cat([row, row]))
    # Eigenvalues 2 and 0.
    assert float(both) == pytest.approx(-(math.log(2) + 0.5 + math.log(1e-5) + 1e5), rel=1e-4)
    assert float(score_rows(torch.ones(2, 40))) == pytest.approx(-2 * (math.log(1e-5) + 1e5), rel=1e-4)
    assert float(score_rows(row)) == pytest.approx(-1, rel=2e-5)


def test_a_row_is_the_gradient_of_all_logits_together():
    model, batch = convolutional(), batch_of([0, 1, 3])
    inputs = batch.inputs[1:2].clone().requires_grad_()
    (expected,) = torch.autograd.grad(model(inputs)[0].sum(), [inputs])
    assert jacobian_rows(model, batch.inputs)[1].tolist() == pytest.approx(expected.flatten().tolist(), abs=1e-12)


def test_the_accuracy_score_is_of_transformed_pictures_with_coins_of_the_batch():
    model, batch = convolutional(), batch_of([0, 1, 2, 3])
    moved = apply("3-1", batch.inputs, rng=generator(2, "search", "accuracy", 1))
    expected = float(score_rows(jacobian_rows(model, moved)))
    assert accuracy.accuracy_score("3-1", batch.inputs, model=model, seed=2, place=1) == expected
    assert accuracy.accuracy_score("3-1", batch.inputs, model=model, seed=2, place=0) != expected


def test_thresholds_point_the_way_of_their_formula():
    assert is_accepted(-85, -85, "released")
    assert not is_accepted(-86, -85, "released")
    assert is_accepted(1.2, 1.3, "paper")
    assert not is_accepted(1.4, 1.3, "paper")


def test_batches_are_the_released_ones_with_one_picture_for_each_class():
    assert [(batch[0], batch[-1]) for batch in accuracy_batches(10_000)] == [
        (200 + 100 * r, 299 + 100 * r) for r in range(10)
    ]
    assert [len(batch) for batch in accuracy_batches(360)] == [100] * 3
    assert [len(batch) for batch in accuracy_batches(30)] == [30]
    assert distinct_labels([4, 4, 1, 0, 1]) == [0, 2, 3]
    # 100 draws from 100 classes leave 63.4 on average: the ceiling behind the threshold of −85.
    draws = [len(distinct_labels(torch.randint(100, (100,), generator=generator(seed)))) for seed in range(200)]
    assert np.mean(draws) == pytest.approx(63.4, abs=0.6)


def test_unknown_ways_to_score_are_refused():
    model, batch = convolutional(), batch_of([0])
    with pytest.raises(UsageError, match="'released' or as in the 'paper', got 'both'"):
        privacy_scores("1", batch, model=model, variant="both")
    with pytest.raises(UsageError, match="'released'"):
        score_rows(torch.rand(2, 4), "both")
    with pytest.raises(UsageError, match="bins must be a whole number"):
        privacy_scores("1", batch, model=model, bins=0)
