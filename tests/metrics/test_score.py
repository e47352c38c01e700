"""Scores: order-free, finite, and one per private example."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakscope.errors import BadInputError
from leakscope.metrics import lpips, mse, psnr, score, ssim
from leakscope.types import Batch, Reconstruction, Status


def batch(count: int = 4, shape: tuple[int, ...] = (3, 12, 12), seed: int = 0) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    return Batch(torch.rand(count, *shape, generator=rng), torch.arange(count))


def found(inputs: torch.Tensor, targets: torch.Tensor | None = None, **rest) -> Reconstruction:
    return Reconstruction(inputs, targets, loss=0.0, status=Status.OK, **rest)


def noisy(truth: Batch, level: float = 0.1) -> torch.Tensor:
    rng = torch.Generator().manual_seed(99)
    return truth.inputs + level * torch.randn(truth.inputs.shape, generator=rng)


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(4)))
def test_order_of_reconstructions_does_not_matter(order):
    truth = batch()
    guess = noisy(truth)
    scores = score(found(guess[list(order)], truth.targets[list(order)]), truth)
    torch.testing.assert_close(scores.psnr, psnr(guess, truth.inputs))
    torch.testing.assert_close(scores.ssim, ssim(guess, truth.inputs))
    torch.testing.assert_close(scores.mse, mse(guess, truth.inputs))
    assert scores.label_correct.all()
    assert [order[row] for row in scores.assignment.tolist()] == [0, 1, 2, 3]
    assert len(scores) == 4
    assert scores.lpips is None


def test_order_of_examples_is_the_order_of_scores():
    truth, guess = batch(), noisy(batch())
    turned = Batch(truth.inputs.flip(0), truth.targets.flip(0))
    there, back = score(found(guess, truth.targets), truth), score(found(guess, truth.targets), turned)
    torch.testing.assert_close(there.psnr.flip(0), back.psnr)


def test_too_few_reconstructions_leave_examples_with_nothing():
    truth = batch()
    scores = score(found(truth.inputs[[2]], truth.targets[[2]]), truth)
    assert scores.assignment.tolist() == [-1, -1, 0, -1]
    assert scores.psnr.tolist() == [0, 0, 150, 0]
    assert scores.mse.tolist() == [1, 1, 0, 1]
    assert scores.ssim.tolist() == pytest.approx([0, 0, 1, 0], abs=1e-6)
    assert scores.label_correct.tolist() == [False, False, True, False]


def test_no_reconstruction_at_all_scores_zero():
    truth = batch()
    scores = score(found(truth.inputs[:0], truth.targets[:0]), truth)
    assert scores.psnr.tolist() == scores.ssim.tolist() == [0, 0, 0, 0]
    assert not scores.label_correct.any()


def test_spare_reconstructions_are_ignored():
    truth = batch()
    guess = torch.cat([torch.zeros(3, 3, 12, 12), truth.inputs])
    assert score(found(guess), truth).assignment.tolist() == [3, 4, 5, 6]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_broken_reconstruction_counts_as_nothing_but_its_label_counts(value):
    truth = batch()
    guess = truth.inputs.clone()
    guess[1, 0, 0, 0] = value
    scores = score(found(guess, truth.targets), truth)
    assert scores.psnr.tolist() == [150, 0, 150, 150]
    assert scores.mse[1] == 1
    assert scores.ssim[1] == 0
    assert scores.label_correct.all()


def test_everything_broken_still_averages():
    truth = batch()
    scores = score(found(torch.full_like(truth.inputs, float("nan"))), truth)
    assert scores.psnr.mean() == 0
    assert scores.ssim.mean() == 0


def test_wrong_labels_and_missing_labels():
    truth = batch()
    wrong = truth.targets.clone()
    wrong[2] = 9
    assert score(found(truth.inputs, wrong), truth).label_correct.tolist() == [True, True, False, True]
    assert not score(found(truth.inputs), truth).label_correct.any()
    soft = torch.eye(4)[truth.targets]
    assert score(found(truth.inputs, target_probabilities=soft), truth).label_correct.all()
    with pytest.raises(BadInputError, match="3 targets for 4 inputs"):
        score(found(truth.inputs, truth.targets[:3]), truth)


def test_vectors_have_no_ssim():
    truth = batch(shape=(6,))
    scores = score(found(truth.inputs.flip(0), truth.targets.flip(0)), truth)
    assert "ssim" not in scores.names()
    assert torch.isnan(score(found(truth.inputs), truth, metrics=["ssim"]).ssim).all()
    assert scores.psnr.tolist() == [150.0] * 4


def test_bounds_set_the_scale():
    truth = batch()
    guess = noisy(truth, 0.05).clamp(0, 1)
    expected = score(found(guess), truth).psnr
    signed = Batch(truth.inputs * 2 - 1, truth.targets, bounds=(-1, 1))
    torch.testing.assert_close(score(found(guess * 2 - 1), signed).psnr, expected, rtol=1e-4, atol=1e-4)


def test_data_without_bounds_is_measured_against_its_own_range():
    values = torch.tensor([[-10.0, 0.0], [30.0, 5.0]])
    truth = Batch(values, torch.zeros(2, dtype=torch.long), bounds=None)
    scores = score(found(values + torch.tensor([[4.0, 0.0], [0.0, 0.0]])), truth)
    assert scores.mse.tolist() == pytest.approx([0.005, 0.0])
    constant = Batch(torch.full((1, 3), 7.0), torch.zeros(1), bounds=None)
    assert score(found(constant.inputs), constant).psnr.tolist() == [150.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes_mix(dtype):
    truth = batch()
    scores = score(found(truth.inputs.to(dtype), truth.targets), truth)
    assert scores.psnr.dtype == torch.promote_types(dtype, torch.float32)
    assert (scores.psnr > 45).all()


def test_inputs_are_left_alone_and_no_graph_is_kept():
    truth = batch()
    guess = noisy(truth).requires_grad_()
    before = guess.detach().clone()
    assert not score(found(guess), truth).psnr.requires_grad
    assert torch.equal(guess, before)


def test_another_shape_is_refused():
    with pytest.raises(BadInputError, match="must return inputs of the private examples' shape"):
        score(found(torch.zeros(4, 3, 6, 6)), batch())


def test_integers_are_refused():
    with pytest.raises(BadInputError, match="divide 8-bit images by 255"):
        score(found(torch.zeros(4, 3, 12, 12, dtype=torch.uint8)), batch())


@pytest.mark.data
def test_lpips_on_request(photos, data_folder):
    path = data_folder / "weights" / "lpips_alex.safetensors"
    truth = Batch(torch.cat([photos, photos.flip(3)]), torch.arange(4))
    guess = truth.inputs[[1, 0]] * 0.9
    scores = score(found(guess), truth, lpips_weights=path)
    assert scores.lpips is not None
    assert scores.assignment[:2].tolist() == [1, 0]
    torch.testing.assert_close(scores.lpips[:2], lpips(guess.flip(0), photos, weights=path))
    assert scores.lpips[2:].tolist() == [1.0, 1.0]
    assert score(found(guess[:0]), truth, lpips_weights=path).lpips is not None
