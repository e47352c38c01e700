"""Reading .npy and .npz without numpy's loader: no pickle, no `eval` of a header, sizes first."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import IO

import torch
from torch import Tensor

from leakscope.files.names import name_problem
from leakscope.files.opening import ByteSource, fill, show
from leakscope.files.safetensors_reader import DTYPES, check_booleans, itemsize
from leakscope.files.zips import RATIO_FLOOR, open_zip

MAGIC = b"\x93NUMPY"
MAX_HEADER = 4096
# numpy code → safetensors code.
_CODES: dict[str, str] = {
    "b1": "BOOL",
    "u1": "U8",
    "i1": "I8",
    "i2": "I16",
    "i4": "I32",
    "i8": "I64",
    "f2": "F16",
    "f4": "F32",
    "f8": "F64",
}
_FIELD = re.compile(r"\s*'(descr|fortran_order|shape)'\s*:\s*('[^'\\]{1,16}'|True|False|\([\d\s,]*\))\s*(?:,\s*|$)")
_DESCR = re.compile(r"'([<>=|])([a-zA-Z])(\d*)'")


@dataclass(frozen=True)
class Header:
    """What one array declares about itself; `length` counts the bytes before the data."""

    code: str
    shape: tuple[int, ...]
    fortran: bool
    swapped: bool
    length: int

    @property
    def nbytes(self) -> int:
        """Bytes of data that must follow."""
        return math.prod(self.shape) * itemsize(self.code)


def read_npy(source: ByteSource) -> dict[str, Tensor]:
    """Return the one array of a .npy file under the positional name "0"."""
    source.file.seek(0)
    header = _read_header(source, source.file, "0")
    source.check_total(header.nbytes)
    _check_size(source, header, source.size, "0")
    return {"0": _read_array(source, source.file, header, "0")}


def list_npz(source: ByteSource, *, ratio_floor: int = RATIO_FLOOR) -> list[str]:
    """Return the names of the arrays of a .npz file, as they are in the archive."""
    with open_zip(source, ratio_floor=ratio_floor) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def read_npz(
    source: ByteSource, *, only: Collection[str] | None = None, ratio_floor: int = RATIO_FLOOR
) -> dict[str, Tensor]:
    """Return the arrays of a .npz file by name, in the order of the archive.

    Arrays saved without a name get the positional names "0", "1", …

    Args:
        source: The opened file.
        only: Names of the arrays to read; the others are neither read nor counted.
        ratio_floor: Arrays of fewer bytes may be compressed as well as they like.
    """
    with open_zip(source, ratio_floor=ratio_floor) as archive:
        members = [item for item in archive.infolist() if only is None or item.filename.removesuffix(".npy") in only]
        source.check_total(sum(member.file_size for member in members))
        result: dict[str, Tensor] = {}
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name == member.filename or name_problem(name):
                raise source.error("expected members named <tensor>.npy; write it with numpy.savez", tensor=name)
            with archive.open(member) as stream:
                header = _read_header(source, stream, name)
                _check_size(source, header, member.file_size, name)
                result[name] = _read_array(source, stream, header, name)
                # Reading to the end is what makes zipfile compare the checksum.
                stream.read(1)
    return _positional(result)


def _positional(arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename arr_0, arr_1, …, numpy's names for arrays saved without one, to "0", "1", "2"."""
    default = [f"arr_{index}" for index in range(len(arrays))]
    if set(arrays) != set(default):
        return arrays
    return {str(index): arrays[name] for index, name in enumerate(default)}


def _read_header(source: ByteSource, stream: IO[bytes], name: str) -> Header:
    start = stream.read(8)
    wide = len(start) == 8 and start[6] in (2, 3)
    if len(start) < 8 or start[:6] != MAGIC or start[6] not in (1, 2, 3):
        raise source.error(
            f"expected an array in .npy format 1–3, got {start[:8]!r}; write it with numpy.save", tensor=name
        )
    size = stream.read(4 if wide else 2)
    length = int.from_bytes(size, "little")
    if length > MAX_HEADER:
        raise source.error(f"expected an array header of at most {MAX_HEADER} bytes, got {length}", tensor=name)
    text = stream.read(length)
    if len(size) != (4 if wide else 2) or len(text) != length:
        raise source.error("the array header is cut short; copy the file again", tensor=name)
    return _parse_header(source, text.decode("latin-1"), 8 + len(size) + length, name)


def _parse_header(source: ByteSource, text: str, length: int, name: str) -> Header:
    fields: dict[str, str] = {}
    inner = text.strip()
    position, body = 0, inner[1:-1].rstrip()
    while inner[:1] == "{" and inner[-1:] == "}" and (match := _FIELD.match(body, position)):
        fields[match[1]] = match[2]
        position = match.end()
    if len(fields) != 3 or position != len(body):
        # The list of a structured dtype ends here too.
        raise source.error(
            f"expected descr, fortran_order and shape of a plain array, got {show(inner)}; "
            "save numbers only, not records",
            tensor=name,
        )
    code, swapped = _dtype(source, fields["descr"], name)
    sizes = [part.strip() for part in fields["shape"][1:-1].split(",") if part.strip()]
    if len(sizes) > 16 or not all(part.isdigit() and len(part) <= 19 for part in sizes):
        raise source.error(f"shape {show(fields['shape'])} is not a shape; write the file again", tensor=name)
    return Header(code, tuple(map(int, sizes)), fields["fortran_order"] == "True", swapped, length)


def _dtype(source: ByteSource, text: str, name: str) -> tuple[str, bool]:
    match = _DESCR.fullmatch(text)
    if match and match[2] == "O":
        raise source.error(
            "holds Python objects, which only pickle can read and leakscope never does; save numeric arrays",
            tensor=name,
        )
    code = _CODES.get(match[2] + match[3]) if match else None
    if match is None or code is None:
        raise source.error(f"expected a dtype among {', '.join(_CODES)}, got {show(text)}; convert it", tensor=name)
    return code, match[1] == ">" and itemsize(code) > 1


def _check_size(source: ByteSource, header: Header, available: int, name: str) -> None:
    if header.length + header.nbytes != available:
        raise source.error(
            f"shape {list(header.shape)} of {header.code} needs {header.nbytes:,} bytes, "
            f"the file holds {available - header.length:,}; write or copy it again",
            tensor=name,
        )


def _read_array(source: ByteSource, stream: IO[bytes], header: Header, name: str) -> Tensor:
    # Fortran order is the transposed array in C order.
    shape = header.shape[::-1] if header.fortran else header.shape
    tensor = torch.empty(shape, dtype=DTYPES[header.code])
    if missing := fill(tensor, stream):  # type: ignore[arg-type]
        raise source.error(f"{missing:,} bytes are missing; copy the file again", tensor=name)
    if header.swapped and tensor.numel():
        tensor.numpy().byteswap(inplace=True)
    check_booleans(source, name, tensor)
    return tensor.permute(tuple(reversed(range(tensor.ndim)))).contiguous() if header.fortran else tensor
