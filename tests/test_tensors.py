from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakscope import tensors
from leakscope.errors import BadInputError
from leakscope.rng import generator, normal


def maps(seed: int, shapes: list[tuple[int, ...]]) -> dict[str, torch.Tensor]:
    like = torch.empty(0, dtype=torch.float64)
    return {f"layer{i}": normal(shape, generator(seed, i), like=like) for i, shape in enumerate(shapes)}


shapes = st.lists(st.lists(st.integers(1, 4), max_size=3).map(tuple), min_size=1, max_size=4)


@given(shapes, st.integers(0, 99))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_dot_and_norm_are_those_of_one_long_vector(sizes, seed):
    left, right = maps(seed, sizes), maps(seed + 1, sizes)
    long_left, long_right = (torch.cat([v.reshape(-1) for v in side.values()]) for side in (left, right))
    torch.testing.assert_close(tensors.dot(left, right), long_left @ long_right)
    torch.testing.assert_close(tensors.global_norm(left), long_left.norm())
    torch.testing.assert_close(tensors.dot(left, left).sqrt(), tensors.global_norm(left))


def test_names_and_their_order_are_kept():
    left = {"b": torch.ones(2), "a": torch.ones(3)}
    right = {"a": torch.full((3,), 2.0), "b": torch.full((2,), 5.0)}
    assert list(tensors.subtract(left, right)) == ["b", "a"]
    assert tensors.subtract(left, right)["b"].tolist() == [-4.0, -4.0]
    assert tensors.scale(right, -0.5)["a"].tolist() == [-1.0] * 3


def test_a_name_on_one_side_only_is_named():
    with pytest.raises(BadInputError, match="names differ: extra on one side only"):
        tensors.subtract({"a": torch.ones(1), "extra": torch.ones(1)}, {"a": torch.ones(1)})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_all_finite_finds_one_bad_number(value):
    assert tensors.all_finite({"a": torch.ones(2)})
    assert not tensors.all_finite({"a": torch.ones(2), "b": torch.tensor([0.0, value])})


def test_detached_clones_do_not_follow_their_source():
    source = torch.ones(2, requires_grad=True)
    copy = tensors.detach({"a": source})["a"]
    with torch.no_grad():
        source.add_(1)
    assert copy.tolist() == [1.0, 1.0]
    assert not copy.requires_grad
