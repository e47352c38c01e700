"""Arrays are read and written as Flower does it, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import Array

from leakscope.flower.array_bytes import to_array, to_tensor

TENSORS = {
    "matrix": torch.arange(6.0).reshape(2, 3),
    "transposed": torch.arange(6.0).reshape(2, 3).T,
    "double": torch.tensor([-0.0, 1e-300, float("nan")], dtype=torch.float64),
    "half": torch.tensor([0.5, -2.0], dtype=torch.float16),
    "count": torch.tensor(7),
    "empty": torch.zeros(0, 4),
}


@pytest.mark.parametrize("name", TENSORS)
def test_an_array_is_what_flower_makes_of_the_tensor(name: str) -> None:
    tensor = TENSORS[name].clone(memory_format=torch.preserve_format)
    flowers, ours = Array(np.ascontiguousarray(tensor.numpy()).reshape(tuple(tensor.shape))), to_array(tensor)
    assert (ours.dtype, ours.shape, ours.stype) == (flowers.dtype, flowers.shape, flowers.stype)
    assert ours.data == flowers.data
    back = to_tensor(ours)
    assert back.dtype == tensor.dtype
    assert back.contiguous().numpy().tobytes() == tensor.contiguous().numpy().tobytes()
    assert back.shape == tensor.shape


def test_a_tensor_is_its_own() -> None:
    array = to_array(torch.zeros(3))
    to_tensor(array).add_(1)
    assert to_tensor(array).tolist() == [0, 0, 0]


def test_column_order_and_a_header_that_says_otherwise_are_left_to_numpy() -> None:
    """What an array says of itself beside its bytes is not believed where the bytes say something else."""
    columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    assert to_tensor(Array(columns)).tolist() == columns.tolist()
    true = Array(np.arange(6.0))
    lying = Array(true.dtype, (2, 3), true.stype, true.data)
    assert to_tensor(lying).shape == (6,)


@pytest.mark.parametrize("data", [b"", b"nothing", to_array(torch.zeros(5)).data[:-1]])
def test_bytes_that_are_no_array_are_refused(data: bytes) -> None:
    with pytest.raises((TypeError, ValueError, EOFError)):
        to_tensor(Array("float32", (5,), "numpy.ndarray", data))


def test_objects_are_refused() -> None:
    with pytest.raises((TypeError, ValueError)):
        to_tensor(Array("object", (1,), "numpy.ndarray", b"\x93NUMPY"))
