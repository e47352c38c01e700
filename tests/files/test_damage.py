"""P3: damaged files end in one typed error that names the file, or load whole."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leakscope.errors import BadInputError
from leakscope.files import load_state

pytestmark = pytest.mark.usefixtures("no_child")


def test_the_samples_are_valid(put, samples) -> None:
    for suffix, data in samples.items():
        assert load_state(put("s" + suffix, data))


def test_cut_at_every_64th(put, samples) -> None:
    for suffix, data in samples.items():
        for part in range(64):
            path = put("s" + suffix, data[: len(data) * part // 64])
            with pytest.raises(BadInputError, match=r"s\.") as caught:
                load_state(path)
            assert len(str(caught.value)) < 1000


def test_one_byte_more_is_noticed(put, samples) -> None:
    for suffix in (".safetensors", ".npy"):
        with pytest.raises(BadInputError):
            load_state(put("s" + suffix, samples[suffix] + b"\0"))


def test_every_flipped_byte(put, samples) -> None:
    refused = 0
    for suffix, data in samples.items():
        for at in range(0, len(data), max(1, len(data) // 300)):
            path = put("s" + suffix, data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
            try:
                assert load_state(path)
            except BadInputError:
                refused += 1
    assert refused > 300


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(max_size=300),
    start=st.sampled_from([b"", b"PK\3\4", b"\x93NUMPY\1\0", b"\2\0\0\0\0\0\0\0{}", b"\x80\2"]),
    suffix=st.sampled_from([".safetensors", ".npz", ".npy", ".pt", ".bin"]),
)
def test_any_bytes(put, data: bytes, start: bytes, suffix: str) -> None:
    with pytest.raises(BadInputError):
        load_state(put("any" + suffix, start + data))


def test_name_and_content_must_agree(put, samples) -> None:
    for suffix, other in ((".pt", ".safetensors"), (".npz", ".pt"), (".npy", ".npz"), (".safetensors", ".pt")):
        with pytest.raises(BadInputError, match="its name says"):
            load_state(put("s" + other, samples[suffix]))
    assert load_state(put("s.bin", samples[".safetensors"]))
