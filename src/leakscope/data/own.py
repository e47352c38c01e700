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

from leakscope.data.examples import arrange_pictures, from_numpy, open_arrays, open_dataset
from leakscope.data.npz import list_own_parts, read_columns, read_groups, read_pair
from leakscope.data.ranges import DeclaredRange
from leakscope.data.sets import FOLDER_PREFIX
from leakscope.data.source import Source, join
from leakscope.errors import MissingDataError, UsageError
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


def open_own(
    name: str, split: str, *, bounds: str | None = None, one_hot: str | None = None, allow_code: bool = False
) -> Source:
    """Open one split, or "all", of the user's own data.

    Args:
        name: Path of an .npz file, or `package.module:function`.
        split: "train", "test" or "all".
        bounds: Range of the inputs as `parse_bounds` reads it; [0, 1], or a Batch's own, unless given.
        one_hot: Columns of a table that are one-hot as `parse_one_hot` reads them, beside those that the data name.
        allow_code: Whether `name` comes from the command line, so that the user's own code may run.
    """
    said = DeclaredRange(bounds, one_hot)
    parts, open_part = _open_file(name, said) if name.lower().endswith(_NPZ) else _call(name, said, allow_code)
    if split == "all":
        opened = [open_part(part) for part in _SPLITS if part in parts]
        return opened[0] if len(opened) == 1 else join(*opened)
    if split not in parts:
        raise MissingDataError(
            f"{name!r} has no {split} part, its examples are all for {' and '.join(parts)}; use split={parts[0]!r}, or "
            "give both parts (x_train, y_train, x_test, y_test in a file, 'train' and 'test' from a function)"
        )
    return open_part(split)


def _open_file(name: str, said: DeclaredRange) -> tuple[list[str], Callable[[str], Source]]:
    path = Path(name).expanduser()
    pairs = list_own_parts(path)

    def open_part(part: str) -> Source:
        inputs, targets = read_pair(path, pairs[part])
        inputs = arrange_pictures(path.name, inputs)
        range_ = said.settle(tuple(inputs.shape[1:]), held=read_columns(path), groups=read_groups(path))
        return open_arrays(path.name, inputs, targets, range_)

    return list(pairs), open_part


@dataclass(frozen=True, eq=False)
class _Returned:
    """What a function returned, by split; two of them are never equal, so that each is opened by itself."""

    name: str
    function: Callable[[], Any]
    parts: Mapping[str, Any]


# One call of each function in a process: facts about the data and the data must be of the same call.
_returned: dict[str, _Returned] = {}


def _call(name: str, said: DeclaredRange, allow_code: bool) -> tuple[list[str], Callable[[str], Source]]:
    returned = _call_once(name, allow_code)
    return list(returned.parts), lambda part: _open_part(returned, part, said)


def call_own(name: str, *, allow_code: bool) -> Mapping[str, Any]:
    """What a function of the user's returned, by split, unchecked."""
    return _call_once(name, allow_code).parts


def _call_once(name: str, allow_code: bool) -> _Returned:
    function = import_function(name, allow_code=allow_code, expected=_EXPECTED)
    if name not in _returned or _returned[name].function is not function:
        value = call(name, function, expected=_EXPECTED)
        _returned[name] = _Returned(name, function, _split(name, value))
    return _returned[name]


def _split(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        return {"test": value}
    if not value or not set(value) <= set(_SPLITS):
        raise UsageError(f"{name!r} returned a dictionary with the keys {list(value)[:5]}; expected {_EXPECTED}")
    return value


# A Dataset is gone through once for its labels, which may take long.
@lru_cache(maxsize=8)
def _open_part(returned: _Returned, part: str, said: DeclaredRange) -> Source:
    name, value = returned.name, returned.parts[part]
    if isinstance(value, Batch):
        if said.is_given and said.settle(tuple(value.inputs.shape[1:])) != value.bounds:
            options = " ".join(
                f"--{option} {text}" for option, text in (("bounds", said.bounds), ("one-hot", said.one_hot)) if text
            )
            raise UsageError(f"{name!r} returns a Batch, whose bounds are {value.bounds}; drop {options}")
        return open_arrays(name, value.inputs, value.targets, value.bounds)
    if isinstance(value, Dataset) and not isinstance(value, IterableDataset):
        return open_dataset(name, value, said)
    if isinstance(value, tuple | list) and len(value) == 2:
        inputs, targets = value
        if isinstance(inputs, np.ndarray) and isinstance(targets, np.ndarray):
            inputs, targets = from_numpy(name, inputs, targets)
        if isinstance(inputs, Tensor) and isinstance(targets, Tensor):
            return open_arrays(name, inputs, targets, said.settle(tuple(inputs.shape[1:])))
    kinds = [type(item).__name__ for item in value] if isinstance(value, tuple | list) else []
    came = f"{type(value).__name__} of {', '.join(kinds[:3])}" if kinds else type(value).__name__
    raise UsageError(f"{name!r} returned a {came}; expected {_EXPECTED}")
