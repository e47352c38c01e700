"""Arrays of numpy: what is a plain array loads exactly, what is not is refused."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
import torch

from leakscope.errors import BadInputError
from leakscope.files import load_state


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8", "<f2", ">f2", "<i8", ">i8", "i1", "u1", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 3, 4)])
def test_every_plain_array_is_read_exactly(put, build, dtype: str, order: str, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape) - 3
    array = np.array(values, dtype=dtype, order=order)  # type: ignore[call-overload]
    loaded = load_state(put("a.npy", build["npy"](array)))["0"]
    assert loaded.is_contiguous()
    assert np.array_equal(loaded.numpy(), array)
    assert loaded.numpy().dtype == array.dtype.newbyteorder("=")


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_header_version_is_read(put, version: tuple[int, int]) -> None:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.arange(3.0), version=version)
    assert load_state(put("a.npy", buffer.getvalue()))["0"].tolist() == [0, 1, 2]


def test_archives_keep_names_and_values(put, samples, build) -> None:
    for suffix in (".npz", ".packed.npz"):
        loaded = load_state(put("a" + suffix, samples[suffix]))
        for name, value in build["tensors"]().items():
            assert torch.equal(loaded[name], value)


def test_unnamed_arrays_become_positions(put) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, *[np.full(1, index) for index in range(11)])
    loaded = load_state(put("a.npz", buffer.getvalue()))
    assert {name: int(value) for name, value in loaded.items()} == {str(index): index for index in range(11)}


def _npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    text = header.encode("latin-1")
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 if version == 1 else 4, "little") + text + data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"), "budget"),
        (_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", b"\0" * 4), "needs 8 bytes"),
        (_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", b"\0" * 5), "needs 4 bytes"),
        (_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"), "plain array"),
        (_npy("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", b"\0" * 8), "dtype among"),
        (_npy("{'descr': '|V2', 'fortran_order': False, 'shape': (1,), }", b"\0" * 2), "dtype among"),
        (_npy("{'descr': '<u8', 'fortran_order': False, 'shape': (1,), }", b"\0" * 8), "dtype among"),
        (_npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", b"\0" * 4), "not records"),
        (_npy("{'descr': __import__('os'), 'fortran_order': False, 'shape': (1,), }"), "plain array"),
        (_npy("((((" * 500), "plain array"),
        (_npy("{'descr': '<f4'}"), "plain array"),
        (_npy("x" * 5000), "at most 4096"),
        (_npy("{}", version=9), "format 1–3"),
        (b"\x93NUMPY", "format 1–3"),
    ],
)
def test_a_lying_array_is_refused(put, build, data: bytes, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        load_state(put("a.npy", data))
    with pytest.raises(BadInputError, match=r"tensor 'w'.*"):
        load_state(put("a.npz", build["zip"]({"w.npy": data})))


def test_an_encrypted_or_exotic_member_is_refused(put, build) -> None:
    member = build["npy"](np.zeros(3))
    flagged = bytearray(build["zip"]({"w.npy": member}))
    flagged[flagged.rfind(b"PK\1\2") + 8] |= 1
    with pytest.raises(BadInputError, match="encrypted"):
        load_state(put("a.npz", bytes(flagged)))
    with pytest.raises(BadInputError, match="stored or deflated"):
        load_state(put("b.npz", build["zip"]({"w.npy": member}, zipfile.ZIP_LZMA)))


def test_a_wrong_checksum_is_refused(put, build) -> None:
    data = bytearray(build["zip"]({"w.npy": build["npy"](np.arange(64.0))}))
    data[300] ^= 1
    with pytest.raises(BadInputError, match="CRC"):
        load_state(put("a.npz", bytes(data)))


def test_zeros_packed_a_thousandfold_get_advice(put) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, w=np.zeros((512, 512), dtype=np.float32))
    with pytest.raises(BadInputError, match=r"tensor 'w.npy': expands .* save it uncompressed \(numpy.savez"):
        load_state(put("a.npz", buffer.getvalue()))


def test_a_few_zeros_packed_are_fine(put) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, bias=np.zeros(4096, dtype=np.float32))
    assert load_state(put("a.npz", buffer.getvalue()))["bias"].count_nonzero() == 0
