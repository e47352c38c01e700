"""SSIM against scikit-image, and against a plain loop where that library cannot go."""

from __future__ import annotations

import math

import pytest
import torch
from skimage.metrics import structural_similarity

from leakscope.errors import BadInputError
from leakscope.metrics import ssim


def random_pair(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(sum(shape))
    left = torch.rand(shape, generator=rng, dtype=torch.float64)
    right = (left + 0.2 * torch.randn(shape, generator=rng, dtype=torch.float64)).clamp(0, 1)
    return left.to(dtype), right.to(dtype)


@pytest.mark.parametrize("shape", [(2, 3, 32, 32), (1, 1, 28, 28), (2, 3, 11, 11), (1, 3, 17, 40)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_agrees_with_scikit_image(shape, dtype):
    left, right = random_pair(shape, dtype)
    found = ssim(left, right)
    for index in range(shape[0]):
        expected = structural_similarity(
            left[index].numpy(),
            right[index].numpy(),
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            channel_axis=0,
            data_range=1,
        )
        assert found[index].item() == pytest.approx(float(expected), abs=1e-5 if dtype == torch.float32 else 1e-12)


def test_photographs_agree_with_scikit_image(photos):
    blurred = torch.nn.functional.avg_pool2d(photos, 3, stride=1, padding=1)
    for index in range(2):
        expected = structural_similarity(
            blurred[index].numpy(),
            photos[index].numpy(),
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            channel_axis=0,
            data_range=1,
        )
        assert ssim(blurred, photos)[index].item() == pytest.approx(float(expected), abs=1e-5)


def by_hand(left: torch.Tensor, right: torch.Tensor, side: int) -> float:
    """SSIM of two planes, window by window."""
    offsets = range(-(side // 2), side // 2 + 1)
    weights = {(y, x): math.exp(-(y * y + x * x) / 4.5) for y in offsets for x in offsets}
    total = sum(weights.values())
    values = []
    for row in range(side // 2, left.shape[0] - side // 2):
        for column in range(side // 2, left.shape[1] - side // 2):
            mean_a = mean_b = square_a = square_b = product = 0.0
            for (y, x), weight in weights.items():
                a, b = left[row + y, column + x].item(), right[row + y, column + x].item()
                share = weight / total
                mean_a, mean_b = mean_a + share * a, mean_b + share * b
                square_a, square_b = square_a + share * a * a, square_b + share * b * b
                product += share * a * b
            top = (2 * mean_a * mean_b + 1e-4) * (2 * (product - mean_a * mean_b) + 9e-4)
            bottom = (mean_a**2 + mean_b**2 + 1e-4) * (square_a - mean_a**2 + square_b - mean_b**2 + 9e-4)
            values.append(top / bottom)
    return sum(values) / len(values)


@pytest.mark.parametrize(
    ("height", "width", "side"), [(8, 8, 7), (7, 12, 7), (10, 9, 9), (3, 5, 3), (2, 2, 1), (1, 4, 1)]
)
def test_small_images_use_the_largest_odd_window_that_fits(height, width, side):
    left, right = random_pair((1, 1, height, width), torch.float64)
    assert ssim(left, right).item() == pytest.approx(by_hand(left[0, 0], right[0, 0], side), abs=1e-10)


def test_identical_is_one_and_inverted_is_negative(photos):
    torch.testing.assert_close(ssim(photos, photos), torch.ones(2), rtol=0, atol=1e-6)
    assert (ssim(1 - photos, photos) < 0.1).all()


def test_flat_images_stay_finite():
    flat = torch.full((1, 3, 16, 16), 0.5)
    assert ssim(flat, flat).item() == pytest.approx(1, abs=1e-6)
    assert torch.isfinite(ssim(torch.zeros_like(flat), flat)).all()


def test_refuses_what_is_not_an_image():
    with pytest.raises(BadInputError, match=r"images \[n, C, H, W\], got shape \[2, 5\]"):
        ssim(torch.zeros(2, 5), torch.zeros(2, 5))
