"""A worker may stop at any byte of what it says: the sweep's process never waits for the rest."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sweep_workloads as workloads

from leakscope.runner import run
from leakscope.runner.frames import Channel, pack_frame, read_frame, split_frame, write_frame
from leakscope.types import Status

HEADER = {"status": "ok", "seconds": 0.5}
# Also a line end, which divides header and data.
DATA = b"\x00\n{}\xff" * 3


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_message_that_stops_at_any_byte_is_not_waited_for(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    channel, frame = Channel(ours.fileno()), pack_frame(HEADER, DATA)
    for stop in range(len(frame)):
        theirs.sendall(frame[:stop])
        assert channel.receive() is None
        assert channel.in_message is (stop > 0)
        theirs.sendall(frame[stop:])
        message = channel.receive()
        assert message is not None
        assert split_frame(message) == (HEADER, DATA)
        assert not channel.in_message
    assert channel.received == len(frame) ** 2


def test_messages_that_arrive_together_are_told_apart_and_the_end_comes_last(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    channel = Channel(ours.fileno())
    theirs.sendall(pack_frame({"first": 1}) + pack_frame({"second": 2}, b"x") + b"\0\0")
    theirs.close()
    first, second = channel.receive(), channel.receive()
    assert first is not None
    assert second is not None
    assert [split_frame(first), split_frame(second)] == [({"first": 1}, b""), ({"second": 2}, b"x")]
    with pytest.raises(EOFError):
        channel.receive()


def test_a_request_that_the_pipe_does_not_take_is_sent_later(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    channel, large = Channel(ours.fileno()), os.urandom(3_000_000)
    channel.send(pack_frame({}, large))
    found = bytearray()
    while len(found) < len(pack_frame({}, large)):
        found += theirs.recv(1 << 20)
        # Also sends what is left.
        assert channel.receive() is None
    assert bytes(found) == pack_frame({}, large)


def test_the_side_that_waits_reads_what_the_other_writes(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    write_frame(theirs.fileno(), pack_frame(HEADER, DATA))
    assert split_frame(read_frame(ours.fileno())) == (HEADER, DATA)
    theirs.close()
    with pytest.raises(EOFError):
        read_frame(ours.fileno())


# Before the length, inside it, behind it, inside the header, and one byte before the end.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("points", [[3, -1], pytest.param([0, 8, 20], marks=pytest.mark.slow)])
def test_a_worker_frozen_anywhere_in_its_answer_costs_one_cell(points: list[int], tmp_path: Path) -> None:
    cells = [workloads.cell("freeze", stop=stop) for stop in points]
    began = time.monotonic()
    result = run([*cells, workloads.cell(seed=1)], workloads.execute, tmp_path / "run", timeout=3)
    assert [outcome.status for outcome in result.finished] == [*[Status.TIMEOUT] * len(points), Status.OK]
    assert workloads.executions()["freeze"] == len(points)
    assert result.finished[0].record["message"] == "no result within 3 s"
    assert time.monotonic() - began < 800


def test_an_answer_that_stalls_is_given_up_without_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leakscope.runner.dispatch._STALLED_SECONDS", 1.0)
    result = run([workloads.cell("freeze", stop=20)], workloads.execute, tmp_path / "run")
    assert result.finished[0].status is Status.TIMEOUT
    assert result.finished[0].record["message"] == "its answer stopped for 1 s"
