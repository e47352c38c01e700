"""CIFAR-10 and CIFAR-100 in the official binary version.

A record is one label byte (two for CIFAR-100: coarse, fine) and 3072 pixels, channel by channel.
The "python version" is a pickle, which can run code when read: it is refused.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from leakscope.data.sets import candidates
from leakscope.data.source import Source, from_arrays
from leakscope.errors import BadInputError
from leakscope.files.opening import budget_bytes
from leakscope.regular_files import read_file

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class _Layout:
    binary: str
    pickled: str
    files: dict[str, tuple[str, ...]]
    label_bytes: int
    classes: int


LAYOUTS = {
    "cifar10": _Layout(
        binary="cifar-10-batches-bin",
        pickled="cifar-10-batches-py",
        files={"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)},
        label_bytes=1,
        classes=10,
    ),
    "cifar100": _Layout(
        binary="cifar-100-binary",
        pickled="cifar-100-python",
        files={"train": ("train.bin",), "test": ("test.bin",)},
        label_bytes=2,
        classes=100,
    ),
}


def find_cifar(name: str, split: str, *, roots: Sequence[Path]) -> list[Path] | None:
    """Return the binary files of one split, or None; a folder with only pickles is an error."""
    layout = LAYOUTS[name]
    for folder in candidates(roots, (layout.binary, f"{name}/{layout.binary}", name, "")):
        files = [folder / file for file in layout.files[split]]
        if all(os.path.isfile(file) for file in files):
            return files
    for folder in candidates(roots, (layout.pickled, f"{name}/{layout.pickled}")):
        raise BadInputError(
            f"{folder.name} is the python version of {name}: pickles, which can run code when read, so leakscope does "
            f"not open them; get the binary version ({name.replace('cifar', 'cifar-')}-binary.tar.gz) from the same "
            f"page and unpack {layout.binary} beside it"
        )
    return None


def open_cifar(name: str, files: Sequence[Path]) -> Source:
    """Open the binary files of one split, one after the other."""
    layout = LAYOUTS[name]
    records = np.concatenate([_records(file, layout) for file in files])
    # The last label byte is the fine label.
    targets = records[:, layout.label_bytes - 1]
    if targets.max() >= layout.classes:
        raise BadInputError(
            f"{files[0].name}: label {targets.max()} is not below {layout.classes}; is it a file of {name}?"
        )
    pixels = records[:, layout.label_bytes :].reshape(-1, 3, 32, 32)
    return from_arrays(pixels.transpose(0, 2, 3, 1), targets)


def _records(file: Path, layout: _Layout) -> np.ndarray:
    length = layout.label_bytes + _PIXELS
    content = read_file(file, most=budget_bytes())
    if not content or len(content) % length:
        raise BadInputError(
            f"{file.name}: expected records of {length} bytes, got {len(content)} bytes; fetch the file again"
        )
    return np.frombuffer(content, np.uint8).reshape(-1, length)
