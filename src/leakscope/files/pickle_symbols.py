"""What a torch pickle may mention, as plain values: nothing here builds or calls anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from leakscope.files.safetensors_reader import itemsize

# torch storage → safetensors code.
STORAGE_CODES: dict[str, str] = {
    "torch.BoolStorage": "BOOL",
    "torch.ByteStorage": "U8",
    "torch.CharStorage": "I8",
    "torch.ShortStorage": "I16",
    "torch.IntStorage": "I32",
    "torch.LongStorage": "I64",
    "torch.HalfStorage": "F16",
    "torch.BFloat16Storage": "BF16",
    "torch.FloatStorage": "F32",
    "torch.DoubleStorage": "F64",
}
# Names that occur in checkpoints as harmless values.
VALUES = frozenset(
    {"torch.float16", "torch.bfloat16", "torch.float32", "torch.float64", "torch.int64", "torch.int32", "torch.bool"}
)


class Refused(ValueError):
    """The pickle asks for something a file of tensors does not need."""


@dataclass(frozen=True)
class Global:
    """A mention of `module.name`; it is never looked up."""

    name: str


@dataclass(frozen=True)
class Storage:
    """A block of `count` elements stored as archive member data/<key>."""

    key: str
    code: str
    count: int


@dataclass(frozen=True)
class TensorSpec:
    """A tensor as declared: a strided window on a storage."""

    storage: Storage
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes once laid out contiguously."""
        size = itemsize(self.storage.code)
        for extent in self.shape:
            size *= extent
        return size


def storage(pid: object) -> Storage:
    """Read a persistent id ('storage', type, key, location, count)."""
    if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage":
        raise Refused("refers to something that is not a tensor storage")
    _, kind, key, _, count = pid
    code = STORAGE_CODES.get(kind.name) if isinstance(kind, Global) else None
    if code is None:
        raise Refused(f"has a storage of type {kind.name if isinstance(kind, Global) else 'unknown'!r}")
    if not isinstance(key, str) or not key.isascii() or not key.isdigit() or not _count(count):
        raise Refused("has a storage without a valid key and size")
    return Storage(key, code, count)


def tensor(arguments: tuple[object, ...]) -> TensorSpec:
    """Read the arguments of `_rebuild_tensor_v2` and check that the window fits its storage.

    Zero, negative or overlapping strides would let a few bytes stand for terabytes.
    """
    if len(arguments) < 6 or len(arguments) > 7 or (len(arguments) == 7 and arguments[6]):
        raise Refused("rebuilds a tensor with unknown arguments")
    block, offset, shape, strides = arguments[:4]
    if not isinstance(block, Storage) or not _count(offset) or not _counts(shape) or not _counts(strides):
        raise Refused("rebuilds a tensor without a valid storage, offset, shape and strides")
    if len(shape) != len(strides) or len(shape) > 16:
        raise Refused(f"rebuilds a tensor with {len(shape)} sizes and {len(strides)} strides")
    if 0 not in shape:
        reach = _reach(shape, strides)
        if offset + reach >= block.count:
            raise Refused(
                f"has a tensor of shape {list(shape)} that needs {offset + reach + 1:,} stored elements "
                f"and holds {block.count:,}"
            )
    return TensorSpec(block, shape)


def _reach(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Index of the last element; refuse when two indices meet the same element."""
    reach = 0
    for stride, extent in sorted((stride, extent) for stride, extent in zip(strides, shape, strict=True) if extent > 1):
        if stride <= reach:
            raise Refused(
                f"has a tensor of shape {list(shape)} with strides {list(strides)}: elements overlap in memory; "
                "save tensor.contiguous() instead of an expanded view"
            )
        reach += (extent - 1) * stride
    return reach


def _parameter(arguments: tuple[object, ...]) -> TensorSpec:
    if len(arguments) != 3 or not isinstance(arguments[0], TensorSpec):
        raise Refused("rebuilds a parameter that is not a tensor")
    return arguments[0]


def _dictionary(arguments: tuple[object, ...]) -> dict[object, object]:
    if arguments not in ((), ([],)):
        raise Refused("builds an ordered dictionary from unknown arguments")
    return {}


def _size(arguments: tuple[object, ...]) -> tuple[int, ...]:
    if len(arguments) != 1 or not _counts(arguments[0]):
        raise Refused("builds a torch.Size that is not a shape")
    return arguments[0]


CALLS: Mapping[str, Callable[[tuple[object, ...]], object]] = {
    "torch._utils._rebuild_tensor_v2": tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "collections.OrderedDict": _dictionary,
    "torch.Size": _size,
}


def _count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 2**63


def _counts(value: object) -> TypeGuard[tuple[int, ...]]:
    return isinstance(value, tuple) and all(_count(item) for item in value)
