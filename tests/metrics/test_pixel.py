"""Pixel metrics against scikit-image, by hand, and by their invariants."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import mean_squared_error, peak_signal_noise_ratio
from torch import Tensor

from leakscope import metrics
from leakscope.errors import BadInputError
from leakscope.metrics import LPIPS, METRICS, Metric, mae, mse, psnr, ssim


def images(seed: int, shape: tuple[int, ...] = (3, 3, 16, 12)) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_mse_and_psnr_agree_with_scikit_image():
    left, right = images(0), images(1)
    for index, (a, b) in enumerate(zip(left.numpy(), right.numpy(), strict=True)):
        assert mse(left, right)[index].item() == pytest.approx(mean_squared_error(a, b), rel=1e-12)
        expected = peak_signal_noise_ratio(b, a, data_range=1)
        assert psnr(left, right)[index].item() == pytest.approx(expected, rel=1e-12)


def test_mae_by_hand():
    left = torch.tensor([[[[0.0, 1.0], [0.5, 0.25]]]])
    right = torch.tensor([[[[0.5, 1.0], [0.5, 0.0]]]])
    assert mae(left, right).tolist() == [0.1875]


def test_values_outside_the_range_are_clamped():
    truth = torch.tensor([[[[0.0, 1.0]]]])
    wild = torch.tensor([[[[-7.0, 9.0]]]])
    assert mse(wild, truth).item() == 0
    assert psnr(wild, truth).item() == pytest.approx(150)


def test_identical_pictures_give_150_db_and_opposite_ones_zero():
    white = torch.ones(2, 1, 4, 4)
    assert psnr(white, white).tolist() == [150.0, 150.0]
    opposite = psnr(white, torch.zeros_like(white))
    assert opposite.tolist() == [0.0, 0.0]
    assert not torch.signbit(opposite).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("metric", [mse, mae, psnr, ssim])
def test_half_precision_is_computed_in_float32(metric, dtype):
    left, right = images(2).to(dtype), images(3).to(dtype)
    found = metric(left, right)
    assert found.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(found.double(), metric(left.double(), right.double()), rtol=1e-5, atol=1e-5)


def test_small_half_precision_errors_do_not_underflow():
    left = torch.full((1, 1, 4, 4), 0.5, dtype=torch.float16)
    right = torch.full((1, 1, 4, 4), 0.5005, dtype=torch.float16)
    assert 0 < mse(left, right).item() < 1e-6


@pytest.mark.parametrize("metric", [mse, mae, psnr, ssim])
def test_a_mismatch_is_named(metric):
    with pytest.raises(BadInputError, match=r"\[3, 3, 16, 12\] and \[2, 3, 16, 12\]"):
        metric(images(0), images(1, (2, 3, 16, 12)))
    with pytest.raises(BadInputError, match="divide 8-bit images by 255"):
        metric(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), torch.zeros(1, 1, 4, 4))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 5),
    channels=st.integers(1, 3),
    height=st.integers(1, 14),
    width=st.integers(1, 14),
    metric=st.sampled_from([mse, mae, psnr, ssim]),
)
def test_order_of_examples_and_of_arguments_does_not_matter(seed, count, channels, height, width, metric):
    left, right = images(seed, (count, channels, height, width)), images(seed + 1, (count, channels, height, width))
    order = torch.from_numpy(np.random.default_rng(seed).permutation(count))
    found = metric(left, right)
    assert found.shape == (count,)
    torch.testing.assert_close(metric(left[order], right[order]), found[order], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(metric(right, left), found, rtol=1e-12, atol=1e-12)


def assert_reads_as_declared(metric: Metric, photos: Tensor) -> None:
    noise = torch.randn(photos.shape, generator=torch.Generator().manual_seed(0))
    near, far = photos + 0.02 * noise, photos + 0.3 * noise
    gain = metric(near, photos) - metric(far, photos)
    assert bool((gain > 0).all() if metric.higher_is_better else (gain < 0).all())
    assert metric.reference


@pytest.mark.parametrize("metric", [metric for metric in METRICS if metric is not LPIPS], ids=lambda m: m.name)
def test_every_metric_reads_in_the_direction_it_declares(metric, photos):
    assert_reads_as_declared(metric, photos)


@pytest.mark.data
def test_lpips_reads_in_the_direction_it_declares(photos, data_folder, monkeypatch):
    monkeypatch.setenv("LEAKSCOPE_DATA", str(data_folder))
    assert_reads_as_declared(LPIPS, photos)


def test_names_are_unique_and_exports_resolve():
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert all(hasattr(metrics, name) for name in metrics.__all__)
