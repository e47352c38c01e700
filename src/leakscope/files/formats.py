"""Tensors from and to files of any supported format.

The reader is chosen by what a file contains; its name may only confirm it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from leakscope.errors import BadInputError
from leakscope.files.atomic import write_atomic
from leakscope.files.names import name_problem
from leakscope.files.numpy_reader import MAGIC, read_npy, read_npz
from leakscope.files.opening import ByteSource, open_bytes, open_source, show
from leakscope.files.safetensors_reader import DTYPES, read_safetensors
from leakscope.files.torch_reader import read_torch
from leakscope.files.zips import open_zip

_SUFFIXES = {".safetensors": "safetensors", ".npz": "npz", ".npy": "npy", ".pt": "torch", ".pth": "torch"}
_FOREIGN = {
    b"\x1f\x8b": "gzip-compressed data",
    b"BZh": "bzip2-compressed data",
    b"\xfd7zXZ": "xz-compressed data",
    b"\x89HDF": "an HDF5 file",
    b"\x80": "a bare pickle (Python's, or torch's before 1.6)",
}
_READERS: dict[str, Callable[[ByteSource], dict[str, Tensor]]] = {
    "npz": read_npz,
    "npy": read_npy,
    "torch": read_torch,
}
_ADVICE = "save tensors as safetensors, .npz or .pt with a current torch.save"


def read_tensors(
    path: str | os.PathLike[str], *, budget_mb: float | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of safetensors, .npz, .npy or .pt, on the CPU, and the metadata of safetensors.

    Raises:
        BadInputError: The file is not what it should be; nothing was loaded and nothing of it was executed.
    """
    with open_source(path, budget_mb=budget_mb) as source:
        return read_any(source)


def unpack_tensors(data: bytes, *, name: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return tensors and metadata of a safetensors file that was read already; it may hold no tensor at all."""
    with open_bytes(data, name=name) as source:
        return read_safetensors(source, may_be_empty=True)


def pack_tensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a safetensors file."""
    check_storable(tensors)
    # Clones: safetensors refuses tensors that share memory, as tied weights do.
    copies = {
        name: value.detach().to("cpu").clone(memory_format=torch.contiguous_format) for name, value in tensors.items()
    }
    return safetensors.torch.save(copies, metadata=dict(metadata or {}))


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> Path:
    """Write tensors as safetensors; the file appears whole or not at all."""
    return write_atomic(path, pack_tensors(tensors, metadata))


def check_storable(tensors: Mapping[str, Tensor]) -> None:
    """Refuse names and dtypes that could not be read back."""
    for name, value in tensors.items():
        if problem := name_problem(name):
            raise BadInputError(f"tensor {show(name)}: the name {problem}; rename it before saving")
        if value.dtype not in DTYPES.values():
            raise BadInputError(f"tensor {show(name)}: {value.dtype} cannot be saved; convert it to float32")


def read_any(source: ByteSource) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a file in any supported format, and its metadata if it has some."""
    found = _recognise(source)
    expected = _SUFFIXES.get(os.path.splitext(source.path)[1].lower(), found)
    if found != expected:
        raise source.error(f"its name says {expected}, its content is {found}; rename it if that is right")
    if found == "safetensors":
        return read_safetensors(source)
    return _READERS[found](source), {}


def _recognise(source: ByteSource) -> str:
    start = source.read(0, min(source.size, 512))
    # The ninth byte opens the JSON header; a length may begin with any byte, so this goes first.
    if start[8:9] == b"{" and start[6:8] == b"\0\0":
        return "safetensors"
    if start.startswith(b"PK\x03\x04"):
        return _recognise_zip(source)
    if start.startswith(MAGIC):
        return "npy"
    for magic, what in _FOREIGN.items():
        if start.startswith(magic):
            raise source.error(f"expected tensors, got {what}, which is never opened; {_ADVICE}")
    if start[257:262] == b"ustar":
        raise source.error(f"expected tensors, got a tar archive, which is never unpacked; {_ADVICE}")
    raise source.error(f"expected safetensors, .npz, .npy or .pt, got {start[:8]!r}…; {_ADVICE}")


def _recognise_zip(source: ByteSource) -> str:
    with open_zip(source) as archive:
        names = archive.namelist()
    if any(name.endswith("/data.pkl") for name in names):
        return "torch"
    if all(name.endswith(".npy") for name in names):
        return "npz"
    raise source.error(f"expected the members of a .npz or .pt archive, got {names[0][:80]!r} and others; {_ADVICE}")
