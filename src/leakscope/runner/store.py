"""Cell files: tensors and record of one outcome as deterministic safetensors bytes.

Timings are not inside, so that the same cell gives the same bytes on every run.
"""

from __future__ import annotations

import hashlib
import json
from typing import BinaryIO

from leakscope.errors import BadInputError
from leakscope.files import pack_tensors, unpack_tensors
from leakscope.runner.cells import Cell, CellOutcome, canonical_json
from leakscope.types import Status

SUFFIX = ".safetensors"

# One metadata entry only: safetensors writes several in an order that changes between processes.
_ENTRY = "leakscope"
_PIECE = 1 << 20


def pack(cell: Cell, outcome: CellOutcome) -> bytes:
    """The bytes of a cell file."""
    entry = {
        "key": cell.key,
        "spec": cell.spec,
        "status": outcome.status.value,
        "record": outcome.record,
    }
    return pack_tensors(outcome.tensors, {_ENTRY: canonical_json(entry, finite=False)})


def unpack(data: bytes, *, source: str) -> tuple[Cell, CellOutcome]:
    """Read a cell file back; timings are filled in by whoever holds the journal."""
    try:
        tensors, metadata = unpack_tensors(data, name=source)
        entry = json.loads(metadata[_ENTRY])
        cell = Cell(entry["spec"], entry["key"])
        return cell, CellOutcome(Status(entry["status"]), entry["record"], tensors)
    except (ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{source} is not a cell file of leakscope ({type(error).__name__}); remove it") from error


def digest(data: bytes) -> str:
    """SHA-256 of a cell file, as the journal holds it."""
    return hashlib.sha256(data).hexdigest()


def digest_file(file: BinaryIO) -> str:
    """As `digest`, of a file that is read in pieces: memory holds one of them."""
    found = hashlib.sha256()
    while piece := file.read(_PIECE):
        found.update(piece)
    return found.hexdigest()
