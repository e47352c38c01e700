"""One run per directory, and no lock outlives its holder."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from leakscope.errors import StorageError, UsageError
from leakscope.runner import lock

IGNORES_FLOCK = OSError(errno.ENOTSUP, "Operation not supported")


def no_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this file system one that has no flock."""

    def refuse(file: int, operation: int) -> None:
        raise IGNORES_FLOCK

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.fixture
def dead_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_second_holder_is_told_who_holds_it(tmp_path: Path) -> None:
    with (
        lock.hold(tmp_path / "lock"),
        pytest.raises(UsageError, match=f"is being run by process {os.getpid()}"),
        lock.hold(tmp_path / "lock"),
    ):
        pass
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_lock_is_free_again_afterwards(tmp_path: Path) -> None:
    for _ in range(2):
        with lock.hold(tmp_path / "lock") as stale:
            assert not stale
    with pytest.raises(RuntimeError, match="boom"), lock.hold(tmp_path / "lock"):
        raise RuntimeError("boom")
    with lock.hold(tmp_path / "lock") as stale:
        assert not stale


@pytest.mark.parametrize("flock_works", [True, False])
def test_lock_of_a_dead_process_is_taken_over(
    tmp_path: Path, dead_process: int, monkeypatch: pytest.MonkeyPatch, flock_works: bool
) -> None:
    if not flock_works:
        no_flock(monkeypatch)
    (tmp_path / "lock").write_text(json.dumps({"pid": dead_process, "start": 1, "boot": "x"}))
    with lock.hold(tmp_path / "lock") as stale:
        assert stale


def test_lock_of_a_reused_pid_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(json.dumps({"pid": os.getpid(), "start": 1, "boot": "x"}))
    with lock.hold(tmp_path / "lock") as stale:
        assert stale


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', "\0\0\0", '{"pid": 99999999999999999999}'])
def test_a_torn_lock_file_is_no_obstacle(tmp_path: Path, content: str) -> None:
    (tmp_path / "lock").write_text(content)
    with lock.hold(tmp_path / "lock") as stale:
        assert stale == bool(content)


def test_without_flock_the_named_process_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_flock(monkeypatch)
    with (
        lock.hold(tmp_path / "lock"),
        pytest.raises(UsageError, match="is being run by"),
        lock.hold(tmp_path / "lock"),
    ):
        pass


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StorageError, match=r"No space left on device; \d+ bytes needed"), lock.hold(tmp_path / "lock"):
        pass
