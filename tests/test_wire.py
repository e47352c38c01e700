"""Bytes on the wire: exact to the bit, small where there is something to save, and hostile bytes are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakscope import wire
from leakscope.defences.prune import prune
from leakscope.defences.quantise import quantise
from leakscope.defences.sign import sign
from leakscope.errors import BadInputError
from leakscope.rng import generator, normal

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
OTHERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool]


def bits(value):
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[value.dtype.itemsize]
    return value.contiguous().reshape(-1).view(whole).numpy().tobytes()


def assert_same(tensors, again):
    assert list(again) == list(tensors)
    for name, value in tensors.items():
        assert (again[name].shape, again[name].dtype) == (value.shape, value.dtype)
        assert bits(again[name]) == bits(value)


def draw_tensor(shape, dtype, seed, *, distinct, zeros):
    """Any bits at all, of few distinct values, many of them zero."""
    rng = np.random.default_rng(seed)
    size = dtype.itemsize
    palette = rng.integers(0, 256, (distinct, size), dtype=np.uint8)
    if dtype == torch.bool:
        palette &= 1
    entries = palette[rng.integers(0, distinct, int(np.prod(shape)))]
    entries[rng.random(len(entries)) < zeros] = 0
    words = torch.from_numpy(entries.reshape(-1).view(f"i{size}").copy())
    return words.view(dtype).reshape(shape)


@given(
    st.lists(st.integers(0, 40), max_size=3).map(tuple),
    st.sampled_from(FLOATS + OTHERS),
    st.integers(0, 999),
    st.sampled_from([1, 2, 3, 17, 300, 5000]),
    st.sampled_from([0.0, 0.3, 0.9, 0.99, 1.0]),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_every_tensor_comes_back_to_the_bit(shape, dtype, seed, distinct, zeros):
    value = draw_tensor(shape, dtype, seed, distinct=distinct, zeros=zeros)
    tensors = {"layer.weight": value, "ü": torch.tensor([-0.0, 0.0, torch.nan, torch.inf])}
    message = wire.encode(tensors)
    assert_same(tensors, wire.decode(message))
    # Never more than the entries themselves and a line about each tensor.
    assert len(message) <= sum(v.numel() * v.dtype.itemsize for v in tensors.values()) + 60


def test_long_gaps_and_large_palettes_come_back():
    far = torch.zeros(300_000)
    far[[0, 127, 128, 255, 16_600, 299_999]] = torch.arange(1.0, 7.0)
    many = torch.arange(1000.0).repeat(9)[torch.randperm(9000, generator=generator(0))]
    tensors = {"far": far, "many": many, "none": torch.zeros(0, 3), "scalar": torch.tensor(2.5)}
    message = wire.encode(tensors)
    assert_same(tensors, wire.decode(message))
    assert len(wire.encode({"far": far})) < 60


def sizes(tensors):
    return len(wire.encode(tensors)) / sum(value.numel() for value in tensors.values())


def test_compressed_updates_are_small_and_others_are_not():
    plain = {"w": normal((200, 100), generator(1)), "b": normal((100,), generator(2))}
    rng = generator(3)
    assert sizes(plain) == pytest.approx(4, rel=0.01)
    # One entry in a hundred: four bytes of value, about one of place.
    assert 0.045 < sizes(prune(0.99).rewrite(plain, rng)) < 0.06
    # One in two: a bitmap.
    assert sizes(prune(0.5).rewrite(plain, rng)) == pytest.approx(2 + 1 / 8, rel=0.01)
    assert sizes(sign().rewrite(plain, rng)) == pytest.approx(1 / 8, rel=0.05)
    # Seven sizes and signs need four bits at most.
    assert sizes(quantise(4).rewrite(plain, rng)) < 0.5 * 1.01
    assert sizes({name: value.half() for name, value in plain.items()}) == pytest.approx(2, rel=0.01)


def test_pruned_entries_are_plain_zeros():
    pruned = prune(0.9).rewrite({"w": -torch.rand(1000, generator=generator(0)) - 0.1}, generator(0))["w"]
    assert int((pruned.view(torch.int32) != 0).sum()) == 100


@pytest.fixture
def message():
    value = torch.zeros(40)
    value[[3, 17]] = torch.tensor([1.5, 2.5])
    return wire.encode({"a": value, "b": sign().rewrite({"b": normal((90,), generator(0))}, generator(0))["b"]})


def test_a_message_that_was_cut_or_lengthened_is_refused(message):
    for end in range(len(message)):
        with pytest.raises(BadInputError, match=r"not a message of leakscope.wire.*encode\(\)"):
            wire.decode(message[:end])
    with pytest.raises(BadInputError, match="bytes are left over"):
        wire.decode(message + b"\0")


def test_damaged_bytes_give_tensors_or_the_one_typed_error(message):
    for place in range(len(message)):
        for change in (1, 2, 128, 255):
            damaged = bytearray(message)
            damaged[place] ^= change
            try:
                wire.decode(bytes(damaged), most_bytes=10**6)
            except BadInputError:
                continue


def test_a_few_bytes_that_promise_too_much_are_refused():
    empty = wire.encode({"a": torch.zeros(1 << 20)})
    assert len(empty) < 40
    with pytest.raises(BadInputError, match="more than most_bytes"):
        wire.decode(empty, most_bytes=1 << 20)
    huge = wire.MAGIC + bytes([1, 1]) + b"a" + bytes([1]) + bytes([255] * 8 + [63]) + bytes([2, 4, 1, 0])
    with pytest.raises(BadInputError, match="more than most_bytes"):
        wire.decode(huge)


def test_an_unknown_dtype_is_refused():
    with pytest.raises(BadInputError, match="complex64"):
        wire.encode({"a": torch.zeros(2, dtype=torch.complex64)})
