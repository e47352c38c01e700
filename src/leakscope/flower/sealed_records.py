"""Sealed weights in Flower's records: the ciphertexts as one array of bytes, whole numbers beside it in the clear."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord
from torch import Tensor

from leakscope.errors import BadInputError
from leakscope.flower.records import to_record, to_tensors
from leakscope.sealed import OpeningKeys, from_bytes, open_sealed
from leakscope.sealed_update import SealedTensor
from leakscope.types import Tensors

# The name of the array that holds what `to_bytes` wrote.
SEALED = "leakscope.sealed"


@dataclass(frozen=True)
class SealedArrays:
    """A record taken apart.

    Attributes:
        message: the sealed update as bytes.
        whole: arrays of whole numbers, such as counters, which are not sealed.
    """

    message: bytes
    whole: dict[str, Tensor]


def is_sealed(record: ArrayRecord) -> bool:
    """Whether a record holds sealed weights."""
    return SEALED in record


def read_sealed(record: ArrayRecord) -> SealedArrays:
    """Take a record apart; nothing in it is believed yet."""
    tensors = to_tensors(record)
    if SEALED not in tensors:
        raise BadInputError(f"expected sealed weights under {SEALED!r}, got arrays in the clear")
    values = tensors.pop(SEALED).numpy()
    if values.dtype != np.uint8 or values.ndim != 1:
        raise BadInputError(f"sealed weights must be one row of bytes, got {list(values.shape)} of {values.dtype}")
    if clear := sorted(name for name, value in tensors.items() if value.is_floating_point()):
        raise BadInputError(f"{', '.join(clear[:3])} came in the clear beside what is sealed")
    return SealedArrays(values.tobytes(), tensors)


def write_sealed(message: bytes, whole: Tensors) -> ArrayRecord:
    """The record that `read_sealed` takes apart."""
    return ArrayRecord({SEALED: Array(np.frombuffer(message, np.uint8)), **to_record(whole)})


def split_whole(tensors: Tensors) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What is sealed, and whole numbers."""
    whole = {name: value for name, value in tensors.items() if not value.is_floating_point()}
    return {name: value for name, value in tensors.items() if name not in whole}, whole


def describe(tensors: Tensors) -> tuple[SealedTensor, ...]:
    """What a sealed update of these tensors says of its contents."""
    return tuple(
        SealedTensor(name, tuple(value.shape), str(value.dtype).removeprefix("torch."))
        for name, value in tensors.items()
    )


def open_arrays(record: ArrayRecord, keys: OpeningKeys) -> dict[str, Tensor]:
    """The weights of a sealed total, for whoever holds the keys: what `SealedStrategy.start(…).arrays` comes to.

    Raises:
        CiphertextError: It was sealed with another key, is damaged, or is one client's weights and no total.
    """
    found = read_sealed(record)
    total = from_bytes(found.message, keys.public)
    if not total.is_total:
        raise BadInputError("expected a sum of clients' weights, got those of one client, which nobody should open")
    opened = {**open_sealed(total, keys), **found.whole}
    # Arrays without names are known by their places, and whole numbers may stand between the others.
    if all(name.isdecimal() for name in opened):
        return dict(sorted(opened.items(), key=lambda item: int(item[0])))
    return opened
