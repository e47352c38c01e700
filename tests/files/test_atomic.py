"""Files appear whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from leakscope.errors import StorageError
from leakscope.files import write_atomic


def test_write_and_replace(tmp_path: Path) -> None:
    path = write_atomic(tmp_path / "f", b"one")
    assert path.read_bytes() == b"one"
    assert write_atomic(path, b"two").read_bytes() == b"two"
    assert write_atomic(tmp_path / "empty", b"").read_bytes() == b""
    assert sorted(item.name for item in tmp_path.iterdir()) == ["empty", "f"]


def test_the_longest_possible_name_works(tmp_path: Path) -> None:
    assert write_atomic(tmp_path / ("n" * 255), b"x").exists()


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_failing_disk_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    path = write_atomic(tmp_path / "f", b"old")

    def fail(*_args: object, **_kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(StorageError, match="1,234 bytes") as caught:
            write_atomic(path, b"x" * 1234)
    assert ("disk is full" in str(caught.value)) == (number != errno.EIO)
    assert [item.name for item in tmp_path.iterdir()] == ["f"]
    assert path.read_bytes() == b"old"


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
    assert write_atomic(tmp_path / "f", bytes(range(100))).read_bytes() == bytes(range(100))


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "f", b"x")
    assert list(tmp_path.iterdir()) == []
