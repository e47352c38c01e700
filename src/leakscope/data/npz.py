"""Arrays of inputs and labels in .npz files, read as any file that may come from anyone.

A named set holds 8-bit pictures as x_train, y_train, x_test and y_test, or as x and y. A file of the user's
own may also call one pair inputs and targets, or images and labels, and hold floats or rows of numbers.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from leakscope.data.examples import check_labels
from leakscope.data.source import Source, every_fifth, from_arrays
from leakscope.errors import BadInputError, UsageError
from leakscope.files.numpy_reader import list_npz, read_npz
from leakscope.files.opening import follow_links, open_source
from leakscope.one_hot import Groups
from leakscope.tasks import Columns

Pair = tuple[str, str]

# Labels in order, as many sets store them, compress a hundredfold: below this size that is not a bomb.
_RATIO_FLOOR = 2**20
_OWN_PAIRS = (("inputs", "targets"), ("x", "y"), ("images", "labels"))


def open_npz(path: Path, split: str) -> Source:
    """Open one split of a named set; a file with only x and y is split by `every_fifth`."""
    held = _list(path)
    for pair in ((f"x_{split}", f"y_{split}"), ("x", "y")):
        if set(pair) <= set(held):
            source = _as_pictures(path, *read_pair(path, pair))
            return source if pair[0] != "x" else every_fifth(source, split)
    raise BadInputError(
        f"{path.name}: expected arrays x_{split} and y_{split} (or x and y), got {', '.join(held[:10])}"
    )


def list_own_parts(path: Path) -> dict[str, Pair]:
    """Names of the arrays of each split in a file of the user's own; one pair alone is the test split."""
    held = _list(path)
    splits = {split: (f"x_{split}", f"y_{split}") for split in ("train", "test")}
    parts = {split: pair for split, pair in splits.items() if set(pair) <= set(held)}
    if parts:
        return parts
    for pair in _OWN_PAIRS:
        if set(pair) <= set(held):
            return {"test": pair}
    raise BadInputError(
        f"{path.name}: expected arrays inputs and targets, x and y, images and labels, or x_train, y_train, x_test and "
        f"y_test, got {', '.join(held[:10])}; save them with numpy.savez(…, inputs=…, targets=…)"
    )


def read_pair(path: Path, names: Pair) -> tuple[Tensor, Tensor]:
    """Inputs and labels by the names of their arrays; nothing else of the file is read."""
    # Links are followed: the user, or LEAKSCOPE_DATA, named this file.
    with open_source(follow_links(path)) as source:
        arrays = read_npz(source, only=names, ratio_floor=_RATIO_FLOOR)
    return arrays[names[0]], arrays[names[1]]


def read_columns(path: Path) -> Columns | None:
    """The ranges of the columns that a file of a table holds beside its rows; None where it holds none.

    Arrays `low` and `high` have one number a column; `one_hot`, which may be absent, is what `read_groups` reads.
    """
    arrays = _read_rows(path, ("low", "high", "one_hot"))
    if not {"low", "high"} <= set(arrays):
        return None
    try:
        return Columns(tuple(arrays["low"].tolist()), tuple(arrays["high"].tolist()), _members(arrays.get("one_hot")))
    except UsageError as error:
        raise BadInputError(f"{path.name}: {error}") from error


def read_groups(path: Path) -> Groups:
    """The one-hot groups that a file names: array `one_hot` has the number of each column's group, −1 for none."""
    return _members(_read_rows(path, ("low", "high", "one_hot")).get("one_hot"))


def _members(numbers: Tensor | None) -> Groups:
    groups = [] if numbers is None else numbers.long().tolist()
    known = sorted({group for group in groups if group >= 0})
    return tuple(tuple(place for place, group in enumerate(groups) if group == number) for number in known)


def _read_rows(path: Path, names: tuple[str, ...]) -> dict[str, Tensor]:
    """Those of some arrays that a file holds: each has one number a column."""
    held = tuple(name for name in names if name in _list(path))
    if not held:
        return {}
    with open_source(follow_links(path)) as source:
        arrays = read_npz(source, only=held, ratio_floor=_RATIO_FLOOR)
    if any(value.ndim != 1 for value in arrays.values()) or len({len(value) for value in arrays.values()}) > 1:
        raise BadInputError(f"{path.name}: low, high and one_hot need one number a column, in one row each")
    return arrays


def _list(path: Path) -> list[str]:
    with open_source(follow_links(path)) as source:
        return list_npz(source, ratio_floor=_RATIO_FLOOR)


def _as_pictures(path: Path, images: Tensor, targets: Tensor) -> Source:
    if images.dtype != torch.uint8 or images.ndim not in (3, 4) or images.numel() == 0:
        raise BadInputError(
            f"{path.name}: images must be uint8 [n, H, W] or [n, H, W, C], got {images.dtype} {list(images.shape)}"
        )
    return from_arrays(images.numpy(), check_labels(path.name, targets, len(images)).numpy())
