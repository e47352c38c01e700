"""P2, P3: a safetensors header is believed in nothing before all of it is checked."""

from __future__ import annotations

import json

import pytest

from leakscope.errors import BadInputError
from leakscope.files import load_state

_GOOD = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def _with(**changes: object) -> dict:
    return {"w": _GOOD | changes}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({}, "at least one tensor"),
        ([], "JSON object|expected safetensors"),
        (_with(dtype="F99"), "dtype among"),
        (_with(dtype=["F32"]), "dtype among"),
        (_with(shape=[2]), "needs 8 bytes, the header gives 4"),
        (_with(shape=[-1]), "list of counts"),
        (_with(shape=[True]), "list of counts"),
        (_with(shape="1"), "list of counts"),
        (_with(shape=[1] * 17), "list of counts"),
        (_with(shape=[10**12], data_offsets=[0, 4 * 10**12]), "budget"),
        (_with(shape=[2**62, 2**62]), "needs"),
        (_with(shape=[10**30]), "digits"),
        (_with(shape=[1.0]), "not an integer"),
        (_with(data_offsets=[4, 8]), "hole"),
        (_with(data_offsets=[0]), "list of counts"),
        (_with(data_offsets=[4, 0]), "gives -4"),
        (_with(extra=1), "fields dtype"),
        ({"w": 3}, "fields dtype"),
        ({"w": _GOOD, "v": _GOOD}, "overlaps"),
        ({"w": _GOOD, "v": _GOOD | {"data_offsets": [4, 8]}}, "declares"),
        ({"__metadata__": {"a": 1}, "w": _GOOD}, "text to text"),
        ({"__metadata__": "x", "w": _GOOD}, "text to text"),
        (_with(dtype="BOOL", shape=[4]), "0 and 1"),
        (b'{"w": ' + json.dumps(_GOOD).encode() + b', "w": ' + json.dumps(_GOOD).encode() + b"}", "occurs twice"),
        (b'{"w": NaN}', "not an integer"),
        (b'{"a":' * 100_000, "not valid JSON"),
        (b'{"\xff": 1}', "not valid JSON"),
        (b"{" + b"x" * 50, "not valid JSON"),
    ],
)
def test_a_lying_header_is_refused(put, build, header: object, message: str) -> None:
    path = put("h.safetensors", build["header"](header, b"\2\2\2\2"))
    with pytest.raises(BadInputError, match=message) as caught:
        load_state(path)
    assert "h.safetensors" in str(caught.value)


@pytest.mark.parametrize("length", [0, 1, 2**20, 2**40, 2**63, 2**64 - 1])
def test_the_header_length_is_bounded(put, length: int) -> None:
    with pytest.raises(BadInputError):
        load_state(put("h.safetensors", length.to_bytes(8, "little") + b'{"w":1}'))


def test_the_message_names_the_tensor(put, build) -> None:
    header = {"layer.weight": _GOOD | {"shape": [3]}}
    with pytest.raises(BadInputError, match=r"tensor 'layer.weight': shape \[3\] of F32 needs 12 bytes"):
        load_state(put("h.safetensors", build["header"](header, b"\0" * 4)))


def test_the_budget_is_the_callers(put, samples) -> None:
    path = put("s.safetensors", samples[".safetensors"])
    assert len(load_state(path, budget_mb=0.01)) == 4
    with pytest.raises(BadInputError, match="larger budget_mb"):
        load_state(path, budget_mb=0.0001)
