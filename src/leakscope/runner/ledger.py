"""A run directory: the lock, the journal and the cell files, kept consistent.

    journal.jsonl             what started and what finished, with each file's SHA-256
    cells/<key>.safetensors   one outcome each
    lock                      who runs it now

A cell is finished once its file is in place *and* the journal says so, in that order. A crash
between the two leaves a file nobody trusts, and the cell is run again.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from leakscope.errors import BadInputError, StorageError, UsageError
from leakscope.files.atomic import private_folder, write_atomic
from leakscope.runner import journal, lock, store
from leakscope.runner.cells import Cell, CellOutcome
from leakscope.types import Status

JOURNAL = "journal.jsonl"
CELLS = "cells"

# What `write_atomic` calls a cell's file until it is whole.
_LEFTOVER = re.compile(r"\.[0-9a-f]+\.[0-9a-f]+\.tmp")


@dataclass(frozen=True)
class FinishedCell:
    """What the journal says of a finished cell."""

    sha256: str
    status: Status
    seconds: float
    peak_mb: float
    measured: dict[str, float] = field(default_factory=dict)


class Ledger:
    """The run directory in the hands of the one process that may write it."""

    def __init__(self, directory: Path, *, stale_lock: bool = False) -> None:
        """Open the journal in `directory`; use `open_ledger`, which also takes the lock."""
        self.directory = directory
        self.journal = journal.Journal(directory / JOURNAL)
        self.entries = entries_of(self.journal.records)
        self.stale_lock = stale_lock

    def intact(self, key: str) -> bool:
        """Whether the file of a finished cell is there and holds the bytes the journal names."""
        try:
            with cell_path(self.directory, key).open("rb") as file:
                return store.digest_file(file) == self.entries[key].sha256
        except OSError:
            return False

    def begin(self, cell: Cell, *, attempt: int) -> None:
        """Note that a cell starts. Not awaited on disk: losing this note loses nothing."""
        try:
            self.journal.append("start", durable=False, key=cell.key, attempt=attempt)
        except OSError as error:
            raise self._full(error) from error

    def commit(self, cell: Cell, data: bytes, entry: FinishedCell) -> None:
        """Store a finished cell: first the file, then the record that makes it count.

        Raises:
            StorageError: the disk is full or broken; cells committed before stay finished.
        """
        path = cell_path(self.directory, cell.key)
        try:
            write_atomic(path, data)
            self.journal.append(
                "finish",
                key=cell.key,
                sha256=entry.sha256,
                status=entry.status.value,
                seconds=round(entry.seconds, 3),
                peak_mb=round(entry.peak_mb, 1),
                measured=entry.measured,
            )
        except OSError as error:
            raise self._full(error, needed=len(data)) from error
        # As it will be read back: a resumed run must not differ from a straight one.
        rounded = replace(entry, seconds=round(entry.seconds, 3), peak_mb=round(entry.peak_mb, 1))
        self.entries[cell.key] = rounded

    def _full(self, error: OSError, *, needed: int = 0) -> StorageError:
        free = shutil.disk_usage(self.directory).free
        # Besides the file: the two records of a cell, and the blocks a file system rounds up to.
        needed += 8192
        return StorageError(
            f"cannot store a cell in {self.directory}: {needed} bytes needed, {free} free ({error}). "
            f"The {len(self.entries)} cells finished before are intact; free space and run the same command again"
        )


def cell_path(directory: Path, key: str) -> Path:
    """Where the file of a cell is."""
    return directory / CELLS / f"{key}{store.SUFFIX}"


def entries_of(records: tuple[journal.Record, ...]) -> dict[str, FinishedCell]:
    """The finished cells in a journal; a later record of the same cell replaces an earlier one."""
    entries = {}
    for record in records:
        if record["kind"] != "finish":
            continue
        try:
            entries[record["key"]] = FinishedCell(
                record["sha256"],
                Status(record["status"]),
                record["seconds"],
                record["peak_mb"],
                record.get("measured", {}),
            )
        except (KeyError, ValueError):
            raise BadInputError(
                f"journal record {record['seq']} is whole but lacks what this version of leakscope writes; "
                "continue this run with the version that started it"
            ) from None
    return entries


@contextmanager
def open_ledger(directory: Path) -> Iterator[Ledger]:
    """Lock `directory` (created with mode 0700) and open its ledger."""
    cells = private_folder(directory / CELLS)
    if cells.is_symlink():
        raise UsageError(f"expected a directory at {cells}, found a link; results are not written through links")
    with lock.hold(directory / "lock") as stale:
        ledger = Ledger(directory, stale_lock=stale)
        try:
            _sweep_leftovers(cells)
            yield ledger
        finally:
            ledger.journal.close()


def _sweep_leftovers(cells: Path) -> None:
    # A process killed between writing a temporary file and renaming it leaves the former behind.
    for path in cells.iterdir():
        if _LEFTOVER.fullmatch(path.name):
            path.unlink(missing_ok=True)


def load_cell(directory: Path, key: str, entry: FinishedCell) -> tuple[Cell, CellOutcome]:
    """Read one finished cell and check it against the journal."""
    path = cell_path(directory, key)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror}; run the sweep again to rebuild it") from error
    if store.digest(data) != entry.sha256:
        raise BadInputError(f"{path} does not hold the bytes the journal names; run the sweep again to rebuild it")
    cell, outcome = store.unpack(data, source=str(path))
    return cell, replace(outcome, seconds=entry.seconds, peak_mb=entry.peak_mb, measured=entry.measured)
