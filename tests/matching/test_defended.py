from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakscope.matching.distances import ClippedFirst, Cosine, PerTensor, Sparsified, SquaredL2
from leakscope.rng import generator, normal

L2 = PerTensor(SquaredL2())
ALL = {
    "mean l2": L2,
    "sparse l2": Sparsified(L2),
    "sparse clipped": L2.masked().clipped(),
    "sparse cosine": Sparsified(Cosine()),
}
SIZES = ((5, 7), (4, 2, 3, 3), (6,))


def grouped(seed, groups=2):
    like = torch.empty(0, dtype=torch.float64)
    return {f"t{i}": normal((groups, *size), generator(seed, i), like=like) for i, size in enumerate(SIZES)}


def pruned(gradient, fraction):
    """Zero the smallest entries of each tensor of each group."""
    found = {}
    for name, value in gradient.items():
        rows = value.flatten(1)
        bound = rows.abs().kthvalue(max(1, int(fraction * rows.shape[1])), dim=1, keepdim=True).values
        found[name] = (rows * (rows.abs() > bound)).reshape(value.shape)
    return found


@pytest.mark.parametrize("distance", ALL.values(), ids=ALL)
@given(st.integers(0, 99))
@settings(max_examples=15, deadline=None, derandomize=True)
def test_the_cotangent_is_what_autograd_gives(distance, seed):
    found, target = grouped(seed), pruned(grouped(seed + 1000), 0.6)
    leaves = {name: value.clone().requires_grad_() for name, value in found.items()}
    value = distance.value(leaves, target)
    expected = torch.autograd.grad(value.sum(), list(leaves.values()))
    again, cotangent = distance.value_and_cotangent(found, target)
    torch.testing.assert_close(again, value.detach())
    for one, other in zip(cotangent.values(), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_the_mean_is_over_tensors():
    found, target = grouped(0), grouped(1)
    assert torch.allclose(L2.value(found, target), SquaredL2().value(found, target) / 3)


@given(st.integers(0, 99), st.floats(0.05, 0.95))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_the_true_gradient_matches_whatever_was_pruned_and_clipped(seed, fraction):
    truth = grouped(seed)
    seen = {name: 0.01 * value for name, value in pruned(truth, fraction).items()}
    assert float(L2.masked().clipped().value(truth, seen).max()) < 1e-20
    assert float(L2.value(truth, seen).min()) > 0.1, "the unaware distance is far off"


def test_masked_columns_are_masked_in_candidates_too():
    truth = grouped(3)
    mask = torch.tensor([1.0, 0, 1, 0, 0, 1, 1], dtype=torch.float64)
    seen = {**truth, "t0": truth["t0"] * mask}
    # The largest candidates stand in masked columns: by size alone others would go.
    loud = {**truth, "t0": truth["t0"] * (1 + 100 * (1 - mask))}
    assert float(Sparsified(L2).value(loud, seen).max()) == 0.0


def test_an_unpruned_update_changes_nothing():
    found, target = grouped(0), grouped(1)
    assert torch.equal(Sparsified(L2).value(found, target), L2.value(found, target))


def test_a_tensor_that_was_not_shared_at_all_says_nothing():
    found, target = grouped(0), grouped(0)
    target["t1"] = torch.zeros_like(target["t1"])
    assert float(Sparsified(L2).value(found, target).max()) == 0.0


def test_the_bound_goes_inside_the_sparsity():
    assert L2.masked().clipped() == Sparsified(ClippedFirst(L2))
    assert L2.clipped().masked() == Sparsified(ClippedFirst(L2))
    assert L2.masked().masked() == Sparsified(L2)
    assert L2.clipped().clipped() == ClippedFirst(L2)
    assert L2.masked().clipped().masked().clipped() == Sparsified(ClippedFirst(L2))
    assert Sparsified(Cosine()).is_scale_free
    assert not Sparsified(L2).is_scale_free
