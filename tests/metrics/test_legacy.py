"""Each published PSNR obeys its conversion to the canonical one."""

from __future__ import annotations

import math

import pytest
import torch

from leakscope.errors import BadInputError
from leakscope.metrics import legacy, psnr

RNG = torch.Generator().manual_seed(7)
TRUTH = torch.rand(5, 3, 12, 10, generator=RNG, dtype=torch.float64) * 0.8
GUESS = (TRUTH + 0.1 * torch.randn(TRUTH.shape, generator=RNG, dtype=torch.float64)).clamp(0, 1)
WILD = TRUTH + 0.6 * torch.randn(TRUTH.shape, generator=RNG, dtype=torch.float64)
CIFAR_STD = (0.2470, 0.2435, 0.2616)


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_unclamped_equals_canonical_inside_the_range_and_is_lower_outside():
    assert_same(legacy.psnr_unclamped(GUESS, TRUTH), psnr(GUESS, TRUTH))
    by_hand = -10 * torch.log10(((WILD - TRUTH) ** 2).mean((1, 2, 3)))
    assert_same(legacy.psnr_unclamped(WILD, TRUTH), by_hand)
    assert (legacy.psnr_unclamped(WILD, TRUTH) < psnr(WILD, TRUTH)).all()


def test_normalised_equals_canonical_for_equal_std():
    assert_same(legacy.psnr_normalised(GUESS, TRUTH, std=(0.3, 0.3, 0.3)), psnr(GUESS, TRUTH))


def test_normalised_follows_its_formula_for_unequal_std():
    std = torch.tensor(CIFAR_STD, dtype=torch.float64)
    per_channel = ((GUESS - TRUTH) ** 2).mean((2, 3))
    whole = (per_channel / std**2).mean(1)
    by_hand = -10 * torch.log10(whole) - 20 * torch.log10(std).mean()
    assert_same(legacy.psnr_normalised(GUESS, TRUTH, std=CIFAR_STD), by_hand)


def test_normalised_does_not_depend_on_the_mean_of_the_data():
    shifted = legacy.psnr_normalised(GUESS - 0.4, TRUTH - 0.4, std=CIFAR_STD)
    assert_same(shifted, legacy.psnr_normalised(GUESS, TRUTH, std=CIFAR_STD))


@pytest.mark.parametrize("std", [(0.2, 0.2), (0.2, 0.2, 0.0)])
def test_normalised_refuses_a_std_that_does_not_fit(std):
    with pytest.raises(BadInputError, match="one positive std per channel"):
        legacy.psnr_normalised(GUESS, TRUTH, std=std)


def test_root_mse_converts_on_8_bit_images():
    guess, truth = (GUESS * 255).round() / 255, (TRUTH * 255).round() / 255
    reported = legacy.psnr_root_mse_8bit(guess, truth)
    assert_same(2 * reported - 20 * math.log10(255), psnr(guess, truth))
    assert legacy.from_root_mse_8bit(reported[0].item()) == pytest.approx(psnr(guess, truth)[0].item(), abs=1e-6)


def test_root_mse_of_a_published_failure_is_not_28_db():
    # An RMSE of 92.12 grey levels was printed as 28.5 dB; it is 8.84 dB.
    offset = 92.12 / 255
    truth, guess = torch.zeros(1, 3, 4, 4), torch.full((1, 3, 4, 4), offset)
    assert legacy.psnr_root_mse_8bit(guess, truth).item() == pytest.approx(28.49, abs=0.01)
    assert psnr(guess, truth).item() == pytest.approx(8.84, abs=0.01)


def test_target_peak_shifts_by_the_brightest_pixel():
    peak = TRUTH.flatten(1).amax(1)
    assert_same(legacy.psnr_target_peak(GUESS, TRUTH), psnr(GUESS, TRUTH) + 20 * torch.log10(peak))


def test_target_peak_of_a_black_truth_is_minus_infinity():
    assert legacy.psnr_target_peak(torch.ones(1, 1, 2, 2), torch.zeros(1, 1, 2, 2)).item() == -math.inf


def test_signed_unit_is_six_db_too_low():
    assert_same(legacy.psnr_signed_unit(GUESS, TRUTH), psnr(GUESS, TRUTH) - 20 * math.log10(2))
