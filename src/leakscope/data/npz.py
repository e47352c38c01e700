"""Image arrays in .npz files: x_train, y_train, x_test, y_test, or x and y for a set without a split.

Pickles inside are refused, and the archive's directory is checked before anything is unpacked.
"""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from leakscope.data.source import MAX_BYTES, Source, every_fifth, from_arrays
from leakscope.errors import BadInputError

# What zipfile and NumPy's header parser raise on damaged, encrypted or hostile files.
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, KeyError, ValueError, TypeError, OverflowError, EOFError, OSError),
    *(SyntaxError, tokenize.TokenError, RuntimeError),
)

# Photographs hardly compress; a member above 1 MiB that grows by more than this is a bomb.
_MAX_RATIO = 20


def open_npz(path: Path, split: str) -> Source:
    """Open one split of an .npz file; a file with only x and y is split by `every_fifth`."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = set(archive.namelist())
            if f"x_{split}.npy" in members:
                return _checked(path, _member(archive, f"x_{split}"), _member(archive, f"y_{split}"))
            if "x.npy" in members:
                return every_fifth(_checked(path, _member(archive, "x"), _member(archive, "y")), split)
    except _DAMAGED as error:
        raise BadInputError(f"{path.name}: not a readable .npz file ({error}); write it with numpy.savez") from None
    raise BadInputError(f"{path.name}: expected arrays x_{split} and y_{split} (or x and y), got {sorted(members)}")


def _member(archive: zipfile.ZipFile, key: str) -> np.ndarray:
    entry = archive.getinfo(f"{key}.npy")
    if entry.file_size > MAX_BYTES:
        raise ValueError(f"{key} declares {entry.file_size} bytes, more than {MAX_BYTES}")
    if entry.file_size > 1 << 20 and entry.file_size > _MAX_RATIO * entry.compress_size:
        raise ValueError(f"{key} grows more than {_MAX_RATIO} times when unpacked")
    with archive.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(stream)
        if dtype.hasobject:
            raise ValueError(f"{key} holds pickled objects, which are never read")
        size = math.prod(shape) * dtype.itemsize
        if size != entry.file_size - stream.tell():
            raise ValueError(f"{key} declares shape {shape} of {dtype}, which is not what it stores")
    with archive.open(entry) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _checked(path: Path, images: np.ndarray, targets: np.ndarray) -> Source:
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.size == 0:
        raise BadInputError(
            f"{path.name}: images must be uint8 [n, H, W] or [n, H, W, C], got {images.dtype} {list(images.shape)}"
        )
    if (
        targets.ndim != 1
        or len(targets) != len(images)
        or not np.issubdtype(targets.dtype, np.integer)
        or targets.min(initial=0) < 0
    ):
        raise BadInputError(
            f"{path.name}: expected {len(images)} whole-number labels ≥ 0, got {targets.dtype} {list(targets.shape)}"
        )
    return from_arrays(images, targets)
