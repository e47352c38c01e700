"""The run directory stays consistent through crashes and full disks. No process is started here."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import sweep_workloads as workloads
import torch

from leakscope.errors import BadInputError, StorageError, UsageError
from leakscope.runner import Cell, CellOutcome, read_cells, store
from leakscope.runner.ledger import FinishedCell, Ledger, cell_path, open_ledger
from leakscope.types import Status

CELLS = [workloads.cell(seed=seed) for seed in range(3)]


def put(ledger: Ledger, cell: Cell) -> None:
    """What the sweep does for a cell, without a worker."""
    ledger.begin(cell, attempt=1)
    outcome = CellOutcome(Status.OK, {"seed": cell.spec["seed"]}, {"x": torch.arange(100.0)})
    data = store.pack(cell, outcome)
    ledger.commit(cell, data, FinishedCell(store.digest(data), Status.OK, 1.5, 20.0))


def fill(directory: Path) -> int:
    """Store all cells that are not stored yet; returns how many."""
    count = 0
    with open_ledger(directory) as ledger:
        for cell in CELLS:
            if cell.key not in ledger.entries or not ledger.intact(cell.key):
                put(ledger, cell)
                count += 1
    return count


def hashes(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (directory / "cells").iterdir()}


@pytest.fixture
def reference(tmp_path: Path) -> dict[str, bytes]:
    fill(tmp_path / "reference")
    return hashes(tmp_path / "reference")


def test_finished_cells_come_back_with_timings(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    found = read_cells(tmp_path / "run")
    assert [cell for cell, _ in found] == sorted(CELLS, key=lambda cell: cell.key)
    for cell, outcome in found:
        assert outcome.record == {"seed": cell.spec["seed"]}
        assert (outcome.status, outcome.seconds, outcome.peak_mb) == (Status.OK, 1.5, 20.0)
        assert torch.equal(outcome.tensors["x"], torch.arange(100.0))


def test_everything_is_private(tmp_path: Path) -> None:
    fill(tmp_path / "new" / "run")
    for path in [tmp_path / "new", *(tmp_path / "new").rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_a_second_ledger_is_refused(tmp_path: Path) -> None:
    with open_ledger(tmp_path), pytest.raises(UsageError, match="is being run by"), open_ledger(tmp_path):
        pass


def test_last_record_torn_at_every_byte_is_made_good(tmp_path: Path, reference: dict[str, bytes]) -> None:
    directory = tmp_path / "run"
    fill(directory)
    journal = directory / "journal.jsonl"
    whole = journal.read_bytes()
    last = len(whole.splitlines(keepends=True)[-1])
    for end in range(len(whole) - last, len(whole)):
        journal.write_bytes(whole[:end])
        assert fill(directory) == 1
        assert hashes(directory) == reference
    assert fill(directory) == 0


@pytest.mark.parametrize("harm", ["remove", "truncate", "flip"])
def test_only_the_cell_with_the_damaged_file_is_redone(tmp_path: Path, reference: dict[str, bytes], harm: str) -> None:
    directory = tmp_path / "run"
    fill(directory)
    path = cell_path(directory, CELLS[1].key)
    data = path.read_bytes()
    path.unlink()
    if harm != "remove":
        path.write_bytes(data[:-1] if harm == "truncate" else data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(BadInputError, match="run the sweep again"):
        read_cells(directory)
    assert fill(directory) == 1
    assert hashes(directory) == reference


def test_a_temporary_file_of_a_killed_process_is_removed(tmp_path: Path, reference: dict[str, bytes]) -> None:
    directory = tmp_path / "run"
    fill(directory)
    (directory / "cells" / f".{CELLS[0].key[:40]}.0123456789abcdef.tmp").write_bytes(b"half")
    (directory / "cells" / "notes.txt").write_text("someone's own file")
    fill(directory)
    assert hashes(directory) == {**reference, "notes.txt": b"someone's own file"}


def test_reading_where_nothing_ran_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"expected journal\.jsonl there"):
        read_cells(tmp_path)


def test_results_are_not_written_through_links(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "cells").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="link"), open_ledger(tmp_path / "run"):
        pass


class Full:
    """A disk that fills up at the n-th write or sync, also in the middle of a write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, at: int) -> None:
        self.calls = 0
        self._at = at
        self._write, self._fsync = os.write, os.fsync
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(os, "fsync", self.fsync)

    def _check(self) -> None:
        self.calls += 1
        if self.calls >= self._at:
            raise OSError(errno.ENOSPC, "No space left on device")

    def write(self, file: int, data: bytes) -> int:
        if self.calls + 1 == self._at:
            self._write(file, data[: len(data) // 2])
        self._check()
        return self._write(file, data)

    def fsync(self, file: int) -> None:
        self._check()
        self._fsync(file)


def test_disk_full_at_every_write(tmp_path: Path, reference: dict[str, bytes]) -> None:
    messages = []
    for at in range(1, 100):
        directory = tmp_path / f"run{at}"
        with pytest.MonkeyPatch.context() as patch:
            disk = Full(patch, at=at)
            try:
                fill(directory)
            except StorageError as error:
                messages.append(str(error))
        if disk.calls < at:
            break
        kept = len(kept_cells(directory))
        assert fill(directory) == len(CELLS) - kept
        assert hashes(directory) == reference
    # Header and lock, then per cell: start, file, file sync, folder sync, finish, finish sync.
    assert len(messages) >= 4 * len(CELLS)
    for message in messages:
        assert "bytes" in message
        assert "No space left" in message or "disk is full" in message


def kept_cells(directory: Path) -> list[tuple[Cell, CellOutcome]]:
    """What is finished; nothing is before the journal exists."""
    return read_cells(directory) if (directory / "journal.jsonl").exists() else []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = shutil.which("mount")
    place = tmp_path / "disk"
    place.mkdir()
    if mount is None or os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root and the mount program")
    if subprocess.run([mount, "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True).returncode:
        pytest.skip("this system does not allow mounting a tmpfs")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_really_is_full(small_disk: Path, reference: dict[str, bytes]) -> None:
    ballast = small_disk / "ballast"
    with open_ledger(small_disk / "run") as ledger:
        put(ledger, CELLS[0])
        free = shutil.disk_usage(small_disk).free
        ballast.write_bytes(b"x" * free)
        with pytest.raises(StorageError, match=r"\d+ bytes needed, \d+ free.*The 1 cells finished before are intact"):
            put(ledger, CELLS[1])
    assert [cell for cell, _ in read_cells(small_disk / "run")] == [CELLS[0]]
    ballast.unlink()
    assert fill(small_disk / "run") == 2
    assert hashes(small_disk / "run") == reference
