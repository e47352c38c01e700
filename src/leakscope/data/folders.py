"""Folders of pictures, read one file at a time.

Three layouts: one sub-folder per class (numbered in the order of their names); files that begin
with class index and WordNet id, as in 0005_n01496331_electric_ray.JPEG; or a flat folder of
anyone's own pictures, which are all of class 0. Sub-folders train and test (or val) are splits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from leakscope.data.pictures import SUFFIXES, decode
from leakscope.data.source import Source
from leakscope.errors import BadInputError, MissingDataError, UsageError
from leakscope.picture_size import PictureSize
from leakscope.regular_files import read_file

_CLASS_PREFIX = re.compile(r"^(\d+)_n\d{8}")
_SPLITS = {"train": ("train",), "test": ("test", "val")}
_ANNOTATIONS = "val_annotations.txt"
# A hundred times Tiny-ImageNet's.
_LARGEST_TABLE = 50_000_000

Labelled = list[tuple[Path, int]]


def open_folder(folder: Path, split: str, *, size: PictureSize | None = None) -> Source:
    """Open one split of a folder; a folder without splits is all test examples."""
    chosen = _split_folder(folder, split)
    labelled = _by_class(chosen, numbers=_class_numbers(folder)) or _flat(chosen)
    if not labelled:
        raise MissingDataError(
            f"{folder.name}: no pictures found; expected files ending in {', '.join(sorted(SUFFIXES))}, "
            "in the folder itself or in one sub-folder per class"
        )
    files = [file for file, _ in labelled]
    targets = torch.tensor([target for _, target in labelled], dtype=torch.int64)
    return Source(targets, lambda positions: _read([files[i] for i in positions], size))


def _own_splits(folder: Path) -> list[str]:
    return [name for names in _SPLITS.values() for name in names if (folder / name).is_dir()]


def _split_folder(folder: Path, split: str) -> Path:
    own = _own_splits(folder)
    for name in _SPLITS[split]:
        if name in own:
            return folder / name
    if own:
        raise MissingDataError(f"{folder.name} has {', '.join(own)} but no sub-folder for split={split!r}")
    if split == "train":
        raise MissingDataError(
            f"{folder.name} has no train sub-folder, so all its pictures are test examples; "
            "use split='test', or sort them into train and test"
        )
    return folder


def _class_numbers(folder: Path) -> dict[str, int]:
    """Number the classes over all splits, so that one missing in a split does not shift the others."""
    splits = [folder / name for name in _own_splits(folder)] or [folder]
    names = {name for split in splits for name in (dict(_annotations(split)).values() or _class_folders(split))}
    return {name: number for number, name in enumerate(sorted(names))}


def _by_class(folder: Path, *, numbers: dict[str, int]) -> Labelled:
    annotated = [(folder / "images" / file, numbers[name]) for file, name in _annotations(folder)]
    if annotated:
        return annotated
    return [(file, numbers[name]) for name, held in _class_folders(folder).items() for file in sorted(_pictures(held))]


def _class_folders(folder: Path) -> dict[str, Path]:
    """Return class name → folder of its pictures; Tiny-ImageNet keeps them one level deeper, in images/."""
    held = {}
    for path in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        for place in (path, path / "images"):
            if place.is_dir() and next(_pictures(place), None):
                held[path.name] = place
                break
    return held


def _annotations(folder: Path) -> list[tuple[str, str]]:
    """Return Tiny-ImageNet's table of file name and WordNet id, as its validation split is distributed."""
    table = folder / _ANNOTATIONS
    if not table.is_file():
        return []
    text = read_file(table, most=_LARGEST_TABLE).decode("utf-8", "replace")
    rows = [line.split("\t") for line in text.splitlines() if line]
    if any(len(row) < 2 or Path(row[0]).name != row[0] for row in rows):
        raise BadInputError(f"{_ANNOTATIONS}: expected lines of file name and class, separated by tabs")
    return [(row[0], row[1]) for row in rows]


def _flat(folder: Path) -> Labelled:
    files = sorted(_pictures(folder))
    prefixes = [_CLASS_PREFIX.match(file.name) for file in files]
    matched = [int(match.group(1)) for match in prefixes if match]
    return list(zip(files, matched if len(matched) == len(files) else [0] * len(files), strict=True))


def _pictures(folder: Path) -> Iterator[Path]:
    return (file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())


def _read(files: Sequence[Path], size: PictureSize | None) -> Tensor:
    pictures = [decode(file, size) for file in files]
    shapes = {picture.shape[:2] for picture in pictures}
    if len(shapes) > 1:
        first, second = sorted(shapes)[:2]
        raise UsageError(
            f"the pictures differ in size ({first[1]}×{first[0]}, {second[1]}×{second[0]}, …); "
            "pass size=… to bring them to one size"
        )
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255
