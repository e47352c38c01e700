"""The user's own data: an .npz file, or what a function named `package.module:function` returns.

Everything is checked when it is opened, so that a wrong shape, range or label is told before any
attack computes. Data without a split of its own are all test examples, as with a folder of pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from leakscope.data.examples import UNIT, Bounds, arrange_pictures, from_numpy, open_arrays, open_dataset
from leakscope.data.npz import list_own_parts, read_columns, read_pair
from leakscope.data.sets import FOLDER_PREFIX
from leakscope.data.source import Source, join
from leakscope.errors import MissingDataError, UsageError
from leakscope.input_values import read_ranges
from leakscope.tasks import Columns
from leakscope.types import Batch
from leakscope.user_code import call, import_function, is_code

_NPZ = ".npz"
_SPLITS = ("train", "test")
_EXPECTED = (
    "package.module:function, a function without arguments that returns a torch Dataset of (input, label), "
    "a pair of tensors or arrays, or a Batch; or a dictionary of these under 'train' and 'test'"
)


def is_own(name: str) -> bool:
    """Whether `name` is an .npz file or a function of the user's, rather than a set or a folder."""
    return not name.startswith(FOLDER_PREFIX) and (name.lower().endswith(_NPZ) or is_code(name))


def parse_bounds(text: str) -> Bounds:
    """The range that an option names: "none" for data without one, "low,high", or "low,high;low,high" by column.

    Example:
        >>> parse_bounds("-1,1")
        (-1.0, 1.0)
    """
    pairs = read_ranges(text)
    if pairs is None or len(pairs) == 1:
        return None if pairs is None else pairs[0]
    return Columns(tuple(low for low, _high in pairs), tuple(high for _low, high in pairs))


def open_own(name: str, split: str, *, bounds: str | None = None, allow_code: bool = False) -> Source:
    """Open one split, or "all", of the user's own data.

    Args:
        name: Path of an .npz file, or `package.module:function`.
        split: "train", "test" or "all".
        bounds: Range of the inputs as `parse_bounds` reads it; [0, 1], or a Batch's own, unless given.
        allow_code: Whether `name` comes from the command line, so that the user's own code may run.
    """
    parts, open_part = _open_file(name, bounds) if name.lower().endswith(_NPZ) else _call(name, bounds, allow_code)
    if split == "all":
        opened = [open_part(part) for part in _SPLITS if part in parts]
        return opened[0] if len(opened) == 1 else join(*opened)
    if split not in parts:
        raise MissingDataError(
            f"{name!r} has no {split} part, its examples are all for {' and '.join(parts)}; use split={parts[0]!r}, or "
            "give both parts (x_train, y_train, x_test, y_test in a file, 'train' and 'test' from a function)"
        )
    return open_part(split)


def _open_file(name: str, bounds: str | None) -> tuple[list[str], Callable[[str], Source]]:
    path = Path(name).expanduser()
    pairs = list_own_parts(path)

    def open_part(part: str) -> Source:
        inputs, targets = read_pair(path, pairs[part])
        chosen = read_columns(path) if bounds is None else None
        return open_arrays(path.name, arrange_pictures(path.name, inputs), targets, chosen or _range(bounds))

    return list(pairs), open_part


@dataclass(frozen=True, eq=False)
class _Returned:
    """What a function returned, by split; two of them are never equal, so that each is opened by itself."""

    name: str
    function: Callable[[], Any]
    parts: Mapping[str, Any]


# One call of each function in a process: facts about the data and the data must be of the same call.
_returned: dict[str, _Returned] = {}


def _call(name: str, bounds: str | None, allow_code: bool) -> tuple[list[str], Callable[[str], Source]]:
    function = import_function(name, allow_code=allow_code, expected=_EXPECTED)
    if name not in _returned or _returned[name].function is not function:
        value = call(name, function, expected=_EXPECTED)
        _returned[name] = _Returned(name, function, _split(name, value))
    returned = _returned[name]
    return list(returned.parts), lambda part: _open_part(returned, part, bounds)


def _split(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        return {"test": value}
    if not value or not set(value) <= set(_SPLITS):
        raise UsageError(f"{name!r} returned a dictionary with the keys {list(value)[:5]}; expected {_EXPECTED}")
    return value


# A Dataset is gone through once for its labels, which may take long.
@lru_cache(maxsize=8)
def _open_part(returned: _Returned, part: str, bounds: str | None) -> Source:
    name, value = returned.name, returned.parts[part]
    if isinstance(value, Batch):
        if bounds is not None and parse_bounds(bounds) != value.bounds:
            raise UsageError(f"{name!r} returns a Batch, whose bounds are {value.bounds}; drop --bounds {bounds}")
        return open_arrays(name, value.inputs, value.targets, value.bounds)
    if isinstance(value, Dataset) and not isinstance(value, IterableDataset):
        return open_dataset(name, value, _range(bounds))
    if isinstance(value, tuple | list) and len(value) == 2:
        inputs, targets = value
        if isinstance(inputs, np.ndarray) and isinstance(targets, np.ndarray):
            return open_arrays(name, *from_numpy(name, inputs, targets), _range(bounds))
        if isinstance(inputs, Tensor) and isinstance(targets, Tensor):
            return open_arrays(name, inputs, targets, _range(bounds))
    kinds = [type(item).__name__ for item in value] if isinstance(value, tuple | list) else []
    came = f"{type(value).__name__} of {', '.join(kinds[:3])}" if kinds else type(value).__name__
    raise UsageError(f"{name!r} returned a {came}; expected {_EXPECTED}")


def _range(bounds: str | None) -> Bounds:
    return UNIT if bounds is None else parse_bounds(bounds)
