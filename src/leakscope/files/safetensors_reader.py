"""Reading safetensors: the header is checked in full before one tensor is allocated.

Layout: 8 bytes little-endian header length, a JSON object name → {dtype, shape, data_offsets},
then the tensors back to back without holes.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leakscope.files.names import name_problem
from leakscope.files.opening import ByteSource, fill, show

# safetensors code → torch dtype; complex, 8-bit float and wide unsigned types are refused by absence.
DTYPES: dict[str, torch.dtype] = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
# About 40,000 tensors. JSON expands some twentyfold in memory, so the text must stay small.
MAX_HEADER = 4 * 2**20
_FIELDS = {"dtype", "shape", "data_offsets"}


@dataclass(frozen=True)
class TensorEntry:
    """One tensor as the header declares it; offsets count from the end of the header."""

    name: str
    code: str
    shape: tuple[int, ...]
    begin: int
    end: int


def itemsize(code: str) -> int:
    """Bytes of one element."""
    return torch.empty((), dtype=DTYPES[code]).element_size()


def read_safetensors(source: ByteSource, *, may_be_empty: bool = False) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a safetensors file."""
    header, start = _read_header(source)
    metadata = _metadata(source, header.pop("__metadata__", {}))
    entries = [_entry(source, name, fields) for name, fields in header.items()]
    if not entries and not may_be_empty:
        raise source.error("expected at least one tensor, got none")
    _check_layout(source, entries, start)
    return {entry.name: _read_tensor(source, entry, start) for entry in entries}, metadata


def _read_header(source: ByteSource) -> tuple[dict[str, Any], int]:
    if source.size < 8:
        raise source.error(f"expected at least 8 bytes of safetensors, got {source.size}; the file is cut short")
    length = int.from_bytes(source.read(0, 8), "little")
    if length > MAX_HEADER or length > source.size - 8:
        raise source.error(
            f"expected a header of at most {min(MAX_HEADER, source.size - 8):,} bytes, got a declared length "
            f"of {length:,}; this is not an intact safetensors file: write or copy it again"
        )
    try:
        header = json.loads(
            source.read(8, length).decode("utf-8"),
            object_pairs_hook=_unique,
            parse_int=_small_int,
            parse_float=_no_number,
            parse_constant=_no_number,
        )
    except (ValueError, RecursionError) as error:
        raise source.error(f"the header is not valid JSON ({str(error)[:200]}); write or copy the file again") from None
    if not isinstance(header, dict):
        raise source.error(f"expected a JSON object as header, got {type(header).__name__}; write the file again")
    return header, 8 + length


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"the name {show(name)} occurs twice")
        result[name] = value
    return result


def _small_int(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _no_number(text: str) -> int:
    raise ValueError(f"the number {text[:20]} is not an integer")


def _metadata(source: ByteSource, value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise source.error("__metadata__ must map text to text; write the file again")
    return value


def _entry(source: ByteSource, name: str, fields: object) -> TensorEntry:
    if problem := name_problem(name):
        raise source.error(f"the tensor name {problem}; rename it before saving", tensor=name)
    if not isinstance(fields, dict) or set(fields) != _FIELDS:
        raise source.error("expected the fields dtype, shape and data_offsets; write the file again", tensor=name)
    code, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        known = ", ".join(DTYPES)
        raise source.error(f"expected a dtype among {known}, got {show(str(code))}; convert it", tensor=name)
    if not _counts(shape) or not _counts(offsets) or len(offsets) != 2 or len(shape) > 16:
        raise source.error("shape or data_offsets is not a list of counts; write the file again", tensor=name)
    begin, end = offsets
    needed = math.prod(shape) * itemsize(code)
    if end - begin != needed:
        raise source.error(
            f"shape {shape} of {code} needs {needed:,} bytes, the header gives {end - begin:,}; write the file again",
            tensor=name,
        )
    return TensorEntry(name, code, tuple(shape), begin, end)


def _counts(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**63 for item in value)


def _check_layout(source: ByteSource, entries: list[TensorEntry], start: int) -> None:
    source.check_total(sum(entry.end - entry.begin for entry in entries))
    reached = 0
    for entry in sorted(entries, key=lambda item: (item.begin, item.end)):
        if entry.begin != reached:
            fault = "overlaps the one before" if entry.begin < reached else "leaves a hole before it"
            raise source.error(
                f"expected the data at offset {reached}, got {entry.begin}: it {fault}; write the file again",
                tensor=entry.name,
            )
        reached = entry.end
    if start + reached != source.size:
        raise source.error(
            f"the header declares {start + reached:,} bytes, the file has {source.size:,}; write or copy it again"
        )


def _read_tensor(source: ByteSource, entry: TensorEntry, start: int) -> Tensor:
    tensor = torch.empty(entry.shape, dtype=DTYPES[entry.code])
    source.file.seek(start + entry.begin)
    if missing := fill(tensor, source.file):  # type: ignore[arg-type]
        raise source.error(f"{missing:,} bytes are missing; copy the file again", tensor=entry.name)
    check_booleans(source, entry.name, tensor)
    return tensor


def check_booleans(source: ByteSource, name: str, tensor: Tensor) -> None:
    """Refuse truth values other than 0 and 1: operators differ in what they make of them."""
    if tensor.dtype == torch.bool and tensor.numel() and int(tensor.view(torch.uint8).max()) > 1:
        raise source.error("expected the bytes 0 and 1 in a BOOL tensor, got others; write it again", tensor=name)
