"""Distances after signs and random rounding: right where the truth is, and with right derivatives."""

from __future__ import annotations

import math

import pytest
import torch

from leakscope.defences.quantise import quantise
from leakscope.matching.distances import Cosine, Denoised, Rounded, SoftSigned, SquaredL2
from leakscope.rng import generator, normal

SIZES = ((5, 7), (6,))
ALL = {
    "signs": SoftSigned(SquaredL2()),
    "bare signs": SoftSigned(Cosine(), scaled=False),
    "rounding": Rounded(SquaredL2(), levels=15),
    "rounded directions": Rounded(Cosine(), levels=15),
}


def grouped(seed, groups=2):
    like = torch.empty(0, dtype=torch.float64)
    return {f"t{i}": normal((groups, *size), generator(seed, i), like=like) for i, size in enumerate(SIZES)}


def rounded(gradient, bits=5):
    rows = [quantise(bits).rewrite({k: v[g] for k, v in gradient.items()}, generator(g)) for g in range(2)]
    return {name: torch.stack([row[name] for row in rows]) for name in gradient}


@pytest.mark.parametrize("distance", ALL.values(), ids=ALL)
def test_the_cotangent_is_the_derivative(distance):
    target = rounded(grouped(3))

    def value(*tensors):
        return distance.value(dict(zip(target, tensors, strict=True)), target).sum()

    leaves = [one.clone().requires_grad_() for one in grouped(1).values()]
    assert torch.autograd.gradcheck(value, leaves, eps=1e-7, atol=1e-5)
    found, cotangent = distance.value_and_cotangent(grouped(1), target)
    torch.testing.assert_close(found, distance.value(grouped(1), target))
    for one, other in zip(cotangent.values(), torch.autograd.grad(value(*leaves), leaves), strict=True):
        torch.testing.assert_close(one, other)


def test_a_soft_sign_is_nearly_the_sign_in_units_of_the_mean_magnitude():
    truth = grouped(0)
    sizes = {name: value.flatten(1).abs().mean(1) for name, value in truth.items()}
    signs = {n: v.sign() * sizes[n].reshape(-1, *[1] * (v.ndim - 1)) for n, v in truth.items()}
    near = SoftSigned(SquaredL2(), width=1e-6).value(truth, signs)
    assert float(near.max()) < 1e-6
    assert float(SquaredL2().value(truth, signs).min()) > 1
    bare = {name: value.sign() for name, value in truth.items()}
    assert float(SoftSigned(SquaredL2(), scaled=False, width=1e-6).value(truth, bare).max()) < 1e-6
    # 3 / √(9 + (0.5 · 2)²), for a mean magnitude of 2.
    two = {"a": torch.tensor([[3.0, 1.0]])}
    soft = SoftSigned(SquaredL2(), scaled=False, width=0.5).value(two, {"a": torch.zeros(1, 2)})
    assert float(soft) == pytest.approx(9 / 10 + 1 / 2)


def test_tensors_count_by_how_finely_they_were_rounded():
    # Norms 5 and 10 over 5 levels are steps of 1 and 2; an entry of 0.5 shows a finer one. The norm of all is √125.
    target = {"a": torch.tensor([[3.0, 4.0]]), "b": torch.tensor([[0.5, math.sqrt(99.75)]])}
    steps, whole = {"a": 1.0, "b": 0.5}, math.sqrt(125)
    gains = Rounded(SquaredL2(), levels=5).gains(target)
    for name, step in steps.items():
        assert float(gains[name]) == pytest.approx((whole / step) ** 0.5), "nothing is zero: half the power"
    found = {"a": torch.tensor([[3.0, 6.0]]), "b": target["b"]}
    assert float(Rounded(SquaredL2(), levels=5).value(found, target)) == pytest.approx(4 * whole)


@pytest.mark.parametrize(("zeros", "power"), [(0, 0.5), (2, 0.5), (3, 0.75), (4, 1.0), (7, 1.0)])
def test_precision_counts_in_full_where_half_of_all_entries_were_rounded_to_zero(zeros, power):
    value = torch.ones(1, 8, dtype=torch.float64)
    value[0, :zeros] = 0
    gains = Rounded(SquaredL2(), levels=100).gains({"a": value[:, :1], "b": value[:, 1:]})
    norm, rest = (torch.linalg.vector_norm(one) for one in (value, value[:, 1:]))
    assert float(gains["b"]) == pytest.approx(float(100 * norm / rest) ** power)
    if zeros:
        assert float(gains["a"]) == 1.0, "a tensor of zeros was not rounded"


def test_relative_noise_weighs_a_tensor_by_what_is_not_noise():
    target = {"a": torch.tensor([[1.0, 3.0]]), "b": torch.tensor([[-2.0, 2.0]])}
    # Of a: mean 2, variance 1, energy 10; half of the variance is noise. Of b: variance 4, energy 8.
    gains = Denoised(SquaredL2(), variance=0.0, relative=1.0).gains(target)
    assert float(gains["a"].square()) == pytest.approx(1 - 0.5 * 1 * 2 / 10)
    assert float(gains["b"].square()) == pytest.approx(1 - 0.5 * 4 * 2 / 8)
    both = Denoised(SquaredL2(), variance=0.5, relative=1.0).gains(target)
    assert float(both["a"].square()) == pytest.approx(1 - (0.5 + 0.5) * 2 / 10)
