"""Tensors in the bytes of Flower's arrays, which are NumPy's files: the header of every shape is made once.

NumPy parses and writes a header as Python code. For a network of small layers that takes longer than the numbers do,
and a client mod does it three times a round.
"""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO

import numpy as np
import torch
from flwr.app import Array
from numpy.lib import format as npy
from torch import Tensor

# Flower's name for NumPy's file format.
_NUMPY = "numpy.ndarray"


def to_array(tensor: Tensor) -> Array:
    """The array that Flower would make of the tensor, byte for byte."""
    numbers = np.ascontiguousarray(tensor.detach().cpu().numpy()).reshape(tuple(tensor.shape))
    header = _header(str(numbers.dtype), numbers.shape)
    return Array(str(numbers.dtype), numbers.shape, _NUMPY, header + numbers.tobytes())


def to_tensor(array: Array) -> Tensor:
    """A tensor of its own with the numbers of the array; what does not begin as expected, NumPy reads itself.

    Raises:
        TypeError, ValueError: The bytes are no array of numbers that torch knows; nothing in them can run.
    """
    shape = tuple(array.shape)
    header = _header(array.dtype, shape) if array.stype == _NUMPY else None
    if header is None or not array.data.startswith(header):
        # A copy: an array of Flower's may be read-only.
        return torch.from_numpy(np.array(array.numpy(), copy=True))
    numbers = np.frombuffer(array.data, array.dtype, offset=len(header))
    return torch.from_numpy(numbers.reshape(shape).copy())


@lru_cache(maxsize=1024)
def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    file = BytesIO()
    told = {"descr": npy.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(file, told)
    return file.getvalue()
