"""Cell files: tensors and record of one outcome as deterministic safetensors bytes.

Timings are not inside, so that the same cell gives the same bytes on every run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from leakscope.errors import BadInputError
from leakscope.sweep.cells import Cell, CellOutcome, canonical_json
from leakscope.types import Status

SUFFIX = ".safetensors"

# One metadata entry only: safetensors writes several in an order that changes between processes.
_ENTRY = "leakscope"


def pack(cell: Cell, outcome: CellOutcome) -> bytes:
    """The bytes of a cell file."""
    entry = {
        "key": cell.key,
        "spec": cell.spec,
        "status": outcome.status.value,
        "record": outcome.record,
    }
    return save(_plain(outcome.tensors), metadata={_ENTRY: canonical_json(entry, finite=False)})


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    # Copies: safetensors refuses views that share memory, and outcomes may hold such views.
    return {
        name: value.detach().to("cpu").clone(memory_format=torch.contiguous_format) for name, value in tensors.items()
    }


def unpack(data: bytes, *, source: str) -> tuple[Cell, CellOutcome]:
    """Read a cell file back; timings are filled in by whoever holds the journal."""
    try:
        entry = json.loads(_metadata(data)[_ENTRY])
        cell = Cell(entry["spec"], entry["key"])
        return cell, CellOutcome(Status(entry["status"]), entry["record"], load(data))
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{source} is not a cell file of leakscope ({type(error).__name__}); remove it") from error


def _metadata(data: bytes) -> dict[str, Any]:
    # `safe_open` reads only from a path; the header is 8 bytes of length and then JSON.
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length])["__metadata__"]


def digest(data: bytes) -> str:
    """SHA-256 of a cell file, as the journal holds it."""
    return hashlib.sha256(data).hexdigest()
