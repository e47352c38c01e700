"""What every metric does first: check that two stacks of examples can be compared."""

from __future__ import annotations

import torch
from torch import Tensor

from leakscope.errors import BadInputError
from leakscope.tasks import Columns
from leakscope.types import Batch


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """Return the widest dtype of `tensors`, and at least float32: half squares underflow."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def prepare_pair(reconstruction: Tensor, truth: Tensor, *, clamp: bool = True) -> tuple[Tensor, Tensor]:
    """Return both stacks in one floating dtype, clamped to [0, 1] unless told otherwise."""
    if reconstruction.shape != truth.shape or truth.ndim < 2:
        raise BadInputError(
            "a metric needs two stacks of the same shape [n, …], "
            f"got {list(reconstruction.shape)} and {list(truth.shape)}; pair them with assign() first"
        )
    require_floating(reconstruction, truth)
    dtype = compute_dtype(reconstruction, truth)
    left, right = reconstruction.to(dtype), truth.to(dtype)
    return (left.clamp(0, 1), right.clamp(0, 1)) if clamp else (left, right)


def require_floating(*tensors: Tensor) -> None:
    """Refuse integers: 8-bit pixels have another scale, tokens have none."""
    for tensor in tensors:
        if not tensor.is_floating_point():
            raise BadInputError(
                f"metrics need floating-point values in [0, 1], got {tensor.dtype}; divide 8-bit images by 255"
            )


def require_images(tensor: Tensor, *, metric: str) -> None:
    """Refuse what is not a stack of images."""
    if tensor.ndim != 4 or 0 in tensor.shape[1:]:
        raise BadInputError(f"{metric} needs images [n, C, H, W], got shape {list(tensor.shape)}")


def to_unit_range(inputs: Tensor, truth: Batch) -> Tensor:
    """Map `inputs` from the bounds of `truth` to [0, 1], the range all metrics are defined on.

    Data without bounds is measured against the range that the private examples span. Rows of a table are taken as a
    table could hold them, every column in its own range.
    """
    bounds = truth.bounds
    if isinstance(bounds, Columns):
        least, most = bounds.limits(inputs)
        return (bounds.decode(inputs) - least) / (most - least)
    if bounds is None:
        bounds = (float(truth.inputs.min()), float(truth.inputs.max()))
    low, high = bounds
    # A constant batch spans nothing; dividing by 1 keeps its distances finite.
    width = (high - low) or 1.0
    return inputs if bounds == (0.0, 1.0) else (inputs - low) / width
