"""Inputs and labels of the user's own, as arrays or as a torch Dataset: checked whole, then a `Source`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from leakscope import types
from leakscope.data.ranges import UNIT as UNIT  # callers know it from here
from leakscope.data.ranges import DeclaredRange
from leakscope.data.source import Source
from leakscope.errors import BadInputError, UsageError
from leakscope.tasks import Columns
from leakscope.user_code import report_errors

Bounds = types.Bounds | None

# A rounding error of a resize is not a different scale.
_TOLERANCE = 1e-4
_CHANNELS = (1, 3)
# A network has an output for each class; more than this is a mistake, such as a number of a customer.
_MOST_CLASSES = 1_000_000


def open_arrays(name: str, inputs: Tensor, targets: Tensor, bounds: Bounds) -> Source:
    """Wrap inputs [n, …] (8-bit pictures, or floats inside `bounds`) and labels [n]."""
    if inputs.ndim < 2 or inputs.numel() == 0:
        raise BadInputError(f"{name}: inputs need shape [n, …] with n ≥ 1, got {list(inputs.shape)}")
    labels = check_labels(name, targets, len(inputs))
    check_inputs(name, inputs, bounds, is_picture=inputs.ndim >= 3)
    return Source(labels, lambda chosen: _to_float(inputs[list(chosen)].detach().cpu()), bounds)


def from_numpy(name: str, inputs: np.ndarray, targets: np.ndarray) -> tuple[Tensor, Tensor]:
    """numpy arrays as tensors, with the channels of pictures brought to the front."""
    try:
        return arrange_pictures(name, torch.from_numpy(inputs)), torch.from_numpy(targets)
    except TypeError as error:
        raise BadInputError(f"{name}: expected arrays of numbers, got {inputs.dtype} and {targets.dtype}") from error


def arrange_pictures(name: str, inputs: Tensor) -> Tensor:
    """Bring pictures [n, H, W], [n, H, W, C] or [n, C, H, W] to [n, C, H, W]; rows stay as they are."""
    if inputs.ndim == 3:
        return inputs[:, None]
    if inputs.ndim != 4:
        return inputs
    first, last = inputs.shape[1] in _CHANNELS, inputs.shape[3] in _CHANNELS
    if first == last:
        raise BadInputError(
            f"{name}: pictures of shape {list(inputs.shape)} have {'two axes' if first else 'no axis'} of 1 or 3 that "
            "could be their channels; a function that returns a tensor [n, C, H, W] leaves no doubt"
        )
    return inputs if first else inputs.permute(0, 3, 1, 2).contiguous()


def check_labels(name: str, targets: Tensor, count: int) -> Tensor:
    """Insist on one whole-number label ≥ 0 for each of `count` examples; return them as int64 [n]."""
    whole = not (targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool)
    if targets.ndim != 1 or len(targets) != count or not whole:
        raise BadInputError(
            f"{name}: expected {count} whole-number labels ≥ 0 in one row, "
            f"got {targets.dtype} of shape {list(targets.shape)}; give the number of the class of each example"
        )
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= _MOST_CLASSES:
        raise BadInputError(
            f"{name}: expected {count} whole-number labels ≥ 0 and below {_MOST_CLASSES:,}, got {low} to {high}; "
            "number the classes from 0"
        )
    return targets.detach().cpu().to(torch.int64)


def check_inputs(name: str, inputs: Tensor, bounds: Bounds, *, is_picture: bool) -> None:
    """Insist on 8-bit pictures, or finite floats inside `bounds`."""
    if inputs.dtype == torch.uint8 and is_picture:
        if bounds != UNIT:
            raise UsageError(f"{name}: 8-bit pictures are brought to [0, 1], so --bounds has no effect; drop it")
        return
    if not inputs.is_floating_point():
        raise BadInputError(
            f"{name}: inputs must be floats, or 8-bit pictures of at least two axes, got {inputs.dtype} of shape "
            f"{list(inputs.shape)}; convert them to float32. Tokens are read by `leakscope attack --attack "
            "embedding-tokens`, and in Python by ls.audit with that attack"
        )
    if not bool(torch.isfinite(inputs).all()):
        raise BadInputError(f"{name}: inputs hold NaN or Inf; clean the data first")
    low, high = float(inputs.min()), float(inputs.max())
    if isinstance(bounds, Columns):
        # A Dataset gives one row at a time.
        bounds.check(inputs if inputs.ndim > 1 else inputs[None])
    elif bounds is not None and (low < bounds[0] - _TOLERANCE or high > bounds[1] + _TOLERANCE):
        raise BadInputError(
            f"{name}: inputs must lie in [{bounds[0]:g}, {bounds[1]:g}], got [{low:.4g}, {high:.4g}]; divide 8-bit "
            "images by 255 and let the model normalise, or name their range: --bounds low,high, or --bounds none for "
            "data without one"
        )


def open_dataset(name: str, dataset: Dataset[Any], said: DeclaredRange) -> Source:
    """Go through a Dataset once for its labels and to check every item; inputs are read again on demand."""
    items = _Items(name, dataset)
    count = items.count()
    labels = []
    first = items.read(0)[0]
    bounds = said.settle(tuple(first.shape))
    for position in range(count):
        value, label = items.read(position)
        if value.shape != first.shape or value.dtype != first.dtype:
            raise BadInputError(
                f"{name}: item {position} is {value.dtype} of shape {list(value.shape)}, item 0 {first.dtype} of "
                f"{list(first.shape)}; bring all to one shape"
            )
        check_inputs(f"{name}: item {position}", value, bounds, is_picture=value.ndim >= 2)
        labels.append(label)
    if not torch.equal(items.read(0)[0], first):
        raise UsageError(
            f"{name} gives another input at each reading of item 0; switch its random transformations off, since an "
            "attack is scored against what was trained on"
        )

    def read(chosen: Sequence[int]) -> Tensor:
        return _to_float(torch.stack([items.read(position)[0] for position in chosen]))

    return Source(check_labels(name, torch.tensor(labels), count), read, bounds)


@dataclass(frozen=True)
class _Items:
    """A Dataset of the user's, whose methods are the user's code."""

    name: str
    dataset: Any

    def count(self) -> int:
        with report_errors(f"{self.name}: the length of its Dataset cannot be read", "expected one with __len__"):
            count = len(self.dataset)
        if count < 1:
            raise BadInputError(f"{self.name}: the Dataset is empty; expected at least one item")
        return count

    def read(self, position: int) -> tuple[Tensor, int]:
        where = f"{self.name}: item {position}"
        with report_errors(f"{where} cannot be read", "expected (input, label)"):
            item = self.dataset[position]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise UsageError(f"{where} must be a pair (input, label), got {type(item).__name__}; return these two")
        value, label = item
        if isinstance(value, np.ndarray):
            with report_errors(f"{where} cannot become a tensor", "return numbers"):
                value = torch.from_numpy(value)
        if not isinstance(value, Tensor) or value.ndim == 0:
            raise UsageError(
                f"{where}: the input must be a tensor [C, H, W] or a row of numbers, got {type(value).__name__}; "
                "convert it in the Dataset, pictures for example with torchvision's ToTensor"
            )
        return value.detach().cpu(), self._check_label(where, label)

    @staticmethod
    def _check_label(where: str, label: object) -> int:
        if isinstance(label, Tensor | np.ndarray) and label.ndim == 0:
            label = label.item()
        if isinstance(label, bool | np.bool_) or not isinstance(label, int | np.integer):
            raise BadInputError(
                f"{where}: the label must be one whole number, got {type(label).__name__}; give the number of its class"
            )
        # torch holds no number beyond 64 bits; `check_labels` says what is wrong with it.
        return max(-1, min(int(label), _MOST_CLASSES))


def _to_float(inputs: Tensor) -> Tensor:
    return inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs.float()
