"""The journal survives what can happen to a file, and says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leakscope.errors import BadInputError, StorageError
from leakscope.runner.journal import HEADER, Journal, decode, encode, scan


def written(path: Path, count: int) -> list[bytes]:
    """A journal of `count` records besides the header, as lines."""
    journal = Journal(path)
    for number in range(count):
        journal.append("finish", key=f"{number:064x}", status="ok")
    journal.close()
    return path.read_bytes().splitlines(keepends=True)


def keys(path: Path) -> list[int]:
    return [int(record["key"], 16) for record in scan(path.read_bytes()).records if "key" in record]


def test_records_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    written(path, 3)
    assert keys(path) == [0, 1, 2]
    assert [record["seq"] for record in scan(path.read_bytes()).records] == [0, 1, 2, 3]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_single_wrong_byte_is_seen() -> None:
    line = encode({"kind": "finish", "key": "ab", "seq": 3})
    for place in range(len(line)):
        for flip in (1, 128):
            wrong = bytearray(line)
            wrong[place] ^= flip
            assert decode(bytes(wrong)) is None


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_tail_torn_at_any_byte_is_cut_and_the_rest_kept(tmp_path: Path, count: int) -> None:
    path = tmp_path / "journal.jsonl"
    lines = written(path, count)
    whole = b"".join(lines)
    first = len(whole) - len(lines[-1])
    for end in range(first, len(whole)):
        path.write_bytes(whole[:end])
        journal = Journal(path)
        assert journal.torn_bytes == end - first
        journal.append("finish", key=f"{99:064x}", status="ok")
        journal.close()
        assert keys(path) == [*range(count - 1), 99]


def test_a_tail_of_zeros_or_noise_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    whole = b"".join(written(path, 2))
    for tail in (b"\0" * 4096, b"\n\n\n", b"noise\nmore noise\n", b"{}\n"):
        path.write_bytes(whole + tail)
        Journal(path).close()
        assert path.read_bytes() == whole


@pytest.mark.parametrize("damage", [b"#", b"\n", b"\r", b"\0"])
def test_a_damaged_record_in_the_middle_costs_only_itself(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    lines = written(path, 4)
    start = sum(map(len, lines[:2]))
    for place in range(start, start + len(lines[2])):
        whole = bytearray(b"".join(lines))
        whole[place : place + 1] = damage
        if bytes(whole) == b"".join(lines):
            continue
        found = scan(bytes(whole))
        left = [int(record["key"], 16) for record in found.records[1:]]
        # A damaged line end takes the next record with it; never more.
        assert left in ([0, 2, 3], [0, 3])
        assert found.damaged_lines
        assert found.good_bytes == len(whole)


def test_numbering_goes_on_behind_damage(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    lines = written(path, 3)
    path.write_bytes(lines[0] + b"damaged\n" + lines[2] + lines[3])
    journal = Journal(path)
    assert journal.damaged_lines == (2,)
    journal.append("finish", key=f"{7:064x}", status="ok")
    journal.close()
    assert keys(path) == [1, 2, 7]


@pytest.mark.parametrize("order", [[0, 2, 3], [0, 2, 1, 3], [0, 1, 1, 2], [0, 1, 2, 3, 1, 2, 3]])
def test_removed_repeated_or_joined_records_are_refused(tmp_path: Path, order: list[int]) -> None:
    path = tmp_path / "journal.jsonl"
    lines = written(path, 3)
    path.write_bytes(b"".join(lines[number] for number in order))
    with pytest.raises(BadInputError, match=r"line \d+: expected record \d+, got \d+"):
        Journal(path)
    assert path.read_bytes() == b"".join(lines[number] for number in order)


@pytest.mark.parametrize(
    "content", [b"my diary\n", HEADER[1:], b"\0" * 10, HEADER.replace(b'"version":1', b'"version":2')]
)
def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match="does not begin as a leakscope journal"):
        Journal(path)
    assert path.read_bytes() == content


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / "journal.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="cannot open"):
        Journal(tmp_path / "journal.jsonl")


def test_a_failed_write_leaves_whole_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.jsonl"
    written(path, 1)
    journal = Journal(path)
    real = os.write

    def half_then_full(file: int, data: bytes) -> int:
        if len(data) < 60:
            raise OSError(28, "No space left on device")
        return real(file, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half_then_full)
    with pytest.raises(StorageError, match=r"No space left on device; \d+ bytes needed"):
        journal.append("finish", key="0" * 64, status="ok")
    monkeypatch.undo()
    journal.append("finish", key=f"{5:064x}", status="ok")
    journal.close()
    assert keys(path) == [0, 5]
