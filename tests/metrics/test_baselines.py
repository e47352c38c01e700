"""The blind guess."""

from __future__ import annotations

import pytest
import torch

from leakscope.metrics import guess_baseline, psnr
from leakscope.types import Batch


def test_grey_decides_on_ordinary_pictures(photos):
    truth = Batch(photos, torch.arange(2))
    torch.testing.assert_close(guess_baseline(truth, 0), psnr(torch.full_like(photos, 0.5), photos))


def test_noise_decides_where_it_happens_to_be_right():
    truth = Batch(torch.tensor([[0.0], [1.0], [0.02]]), torch.arange(3))
    grey = psnr(torch.full((3, 1), 0.5), truth.inputs)
    best = torch.stack([guess_baseline(truth, seed) for seed in range(50)])
    assert (best >= grey).all()
    assert (best.amax(0) > grey + 10).all()


def test_never_below_six_decibels_and_seeded():
    truth = Batch(torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0)).round(), torch.arange(6))
    assert (guess_baseline(truth, 1) >= 6.02).all()
    assert torch.equal(guess_baseline(truth, 1), guess_baseline(truth, 1))


def test_bounds_move_the_grey():
    truth = Batch(torch.zeros(2, 4), torch.arange(2), bounds=(-1, 1))
    assert guess_baseline(truth, 0).tolist() == pytest.approx([150, 150])


def test_half_precision():
    truth = Batch(torch.rand(2, 3, 8, 8).half(), torch.arange(2))
    assert guess_baseline(truth, 0).dtype == torch.float32
