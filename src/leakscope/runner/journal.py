r"""The append-only journal of a run: one checked record per line.

A line is canonical JSON with a sequence number and a checksum over the rest. Losing a record
is always safe: the cell it spoke of is run again. Trusting a wrong one is not, so each has a checksum.

    {"kind":"finish","key":"ab…","seq":7,"sha256":"…","status":"ok",…,"sum":"…"}\n
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leakscope.errors import BadInputError, StorageError
from leakscope.files.atomic import sync_folder
from leakscope.runner.cells import canonical_json

Record = dict[str, Any]


def encode(record: Record) -> bytes:
    """One record as one line; equal records give equal bytes."""
    digest = hashlib.sha256(canonical_json(record).encode()).hexdigest()[:16]
    return canonical_json({**record, "sum": digest}).encode() + b"\n"


def decode(line: bytes) -> Record | None:
    """The record of a line, None when a single byte of it is wrong."""
    try:
        record = json.loads(line)
        del record["sum"]
        return record if encode(record) == line and isinstance(record["seq"], int) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


HEADER = encode({"kind": "journal", "version": 1, "seq": 0})


@dataclass(frozen=True)
class Scan:
    """What a journal's bytes say: good records, where they end, which lines between are damaged."""

    records: tuple[Record, ...]
    good_bytes: int
    damaged_lines: tuple[int, ...]


def scan(data: bytes, *, source: str = "journal") -> Scan:
    """Read a journal whatever happened to it.

    Everything behind the last good line is a torn tail. A damaged line between good ones is
    reported; records that are out of order, or missing without a trace, are an error, since
    then the file was edited or joined from two.
    """
    if not data.startswith(HEADER):
        if HEADER.startswith(data):
            return Scan((), 0, ())
        raise BadInputError(
            f"{source} does not begin as a leakscope journal (version 1) does; "
            "use another directory, or move that file away to start this run again"
        )
    records: list[Record] = []
    damaged: list[int] = []
    position = good = 0
    unsure: list[int] = []  # damaged lines that are a torn tail unless a good line follows
    for number, line in enumerate(data.splitlines(keepends=True), start=1):
        position += len(line)
        record = decode(line)
        if record is None:
            unsure.append(number)
            continue
        _check_order(records, record, gap_explained=bool(unsure), where=f"{source} line {number}")
        records.append(record)
        damaged += unsure
        unsure, good = [], position
    return Scan(tuple(records), good, tuple(damaged))


def _check_order(records: list[Record], record: Record, *, gap_explained: bool, where: str) -> None:
    if not records:
        return
    expected = records[-1]["seq"] + 1
    if record["seq"] == expected or (gap_explained and record["seq"] > expected):
        return
    raise BadInputError(
        f"{where}: expected record {expected}, got {record['seq']}; records were removed, repeated or "
        "joined from two runs. Restore the file, or move it away to run all cells again"
    )


class Journal:
    """The open journal of the one process that runs the sweep."""

    def __init__(self, path: Path) -> None:
        """Open or create the journal at `path` and cut off a torn tail."""
        self._path = path
        # O_NOFOLLOW: a link planted in the directory must not redirect what we truncate.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._file = os.open(path, flags, 0o600)
        except OSError as error:
            raise StorageError(f"cannot open {path} for writing: {error.strerror}") from error
        try:
            data = path.read_bytes()
            found = scan(data, source=str(path))
            self.records = found.records
            self.damaged_lines = found.damaged_lines
            self.torn_bytes = len(data) - found.good_bytes
            self._size = found.good_bytes
            if self.torn_bytes:
                os.ftruncate(self._file, self._size)
            self._sequence = found.records[-1]["seq"] + 1 if found.records else 0
            if not found.records:
                self._write(HEADER)
                # The file is on the disk only when its name is too.
                sync_folder(path.parent)
        except BaseException:
            self.close()
            raise

    def append(self, kind: str, *, durable: bool = True, **fields: Any) -> None:
        """Add one record; `durable` waits until it is on the disk."""
        self._write(encode({"kind": kind, "seq": self._sequence, **fields}), durable=durable)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, line: bytes, *, durable: bool = True) -> None:
        written = 0
        try:
            while written < len(line):
                written += os.write(self._file, line[written:])
            if durable:
                os.fsync(self._file)
        except OSError as error:
            # Back to the last whole record; if even that fails, the next run cuts the tail.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise StorageError(f"cannot write {self._path}: {error.strerror}; {len(line)} bytes needed") from error
        self._size += len(line)
        self._sequence += 1
