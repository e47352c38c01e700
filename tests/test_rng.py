from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from leakscope import rng


@given(st.integers(0, 2**31), st.text(alphabet="abc", min_size=1), st.text(alphabet="def", min_size=1))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_a_child_depends_on_seed_and_path_alone(seed, first, second):
    assert rng.child_seed(seed, first, second) == rng.child_seed(seed, first, second)
    others = {rng.child_seed(seed + 1, first, second), rng.child_seed(seed, second, first), rng.child_seed(seed, first)}
    assert rng.child_seed(seed, first, second) not in others
    assert 0 <= rng.child_seed(seed, first) < 2**63


def test_the_same_numbers_in_every_dtype_and_never_from_the_global_generator():
    state = torch.random.get_rng_state()
    wide = rng.normal((5,), rng.generator(3, "x"), like=torch.empty(0, dtype=torch.float64))
    narrow = rng.normal((5,), rng.generator(3, "x"))
    assert narrow.dtype == torch.float32
    assert torch.equal(wide.float(), narrow)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("draw", "law"),
    [
        (lambda g: rng.normal_like(torch.empty(20_000, dtype=torch.float64), g), stats.norm()),
        (lambda g: rng.laplace_like(torch.empty(20_000, dtype=torch.float64), g), stats.laplace()),
        (lambda g: rng.uniform((20_000,), g), stats.uniform()),
    ],
    ids=["normal", "laplace", "uniform"],
)
def test_draws_follow_their_law(draw, law):
    assert stats.kstest(draw(rng.generator(0, "law")).numpy(), law.cdf).pvalue > 0.01


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_same_numbers_on_every_device():
    there = rng.normal((5,), rng.generator(3), like=torch.empty(0, device="cuda"))
    assert torch.equal(there.cpu(), rng.normal((5,), rng.generator(3)))
