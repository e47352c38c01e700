"""The element types an update or a state dict may hold, under each format's own name."""

from __future__ import annotations

import torch

# safetensors code → torch dtype; complex, 8-bit float and wide unsigned types are refused by absence.
DTYPES: dict[str, torch.dtype] = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}

NUMPY_CODES: dict[str, str] = {
    "b1": "BOOL",
    "u1": "U8",
    "i1": "I8",
    "i2": "I16",
    "i4": "I32",
    "i8": "I64",
    "f2": "F16",
    "f4": "F32",
    "f8": "F64",
}

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


def itemsize(code: str) -> int:
    """Bytes of one element."""
    return torch.empty((), dtype=DTYPES[code]).element_size()
