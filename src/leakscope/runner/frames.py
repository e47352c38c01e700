"""Messages between the sweep's process and its workers: a length, then so many bytes.

The sweep's process never waits for the rest of a message: a worker may stop at any byte of it. A worker has nothing
else to do and waits.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Mapping
from typing import Any

_LENGTH = struct.Struct("!Q")
_CHUNK = 1 << 20
# What one look takes at most, so that one talkative worker does not keep the others waiting.
_MOST_AT_ONCE = 64 << 20


def pack_message(header: Mapping[str, Any], data: bytes = b"") -> bytes:
    """One message: a line of JSON, then `data` as it is."""
    return json.dumps(header).encode() + b"\n" + data


def pack_frame(header: Mapping[str, Any], data: bytes = b"") -> bytes:
    """One message behind its length, for a pipe."""
    message = pack_message(header, data)
    return _LENGTH.pack(len(message)) + message


def split_frame(message: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and data of a message."""
    text, _, data = message.partition(b"\n")
    return json.loads(text), data


class Channel:
    """One end of a pipe that is never waited for; what cannot be sent yet is kept."""

    def __init__(self, descriptor: int) -> None:
        """Use `descriptor`, which stays the caller's to close."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self.received = 0

    @property
    def in_message(self) -> bool:
        """Whether a message has begun and is not whole."""
        return bool(self._incoming)

    def send(self, frame: bytes) -> None:
        """Send what the pipe takes, and the rest with later calls of `send` and `receive`."""
        self._outgoing += frame
        with contextlib.suppress(BlockingIOError):
            while self._outgoing:
                sent = os.write(self._descriptor, memoryview(self._outgoing)[:_CHUNK])
                del self._outgoing[:sent]

    def receive(self) -> bytes | None:
        """The next whole message, None while there is none.

        Raises:
            EOFError: the other end is closed, and no whole message is left.
        """
        self.send(b"")
        ended = self._fill()
        if len(self._incoming) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._incoming)[0]
            if len(self._incoming) >= end:
                message = bytes(memoryview(self._incoming)[_LENGTH.size : end])
                del self._incoming[:end]
                return message
        if ended:
            raise EOFError
        return None

    def _fill(self) -> bool:
        """Take what has arrived; whether the other end is closed."""
        most = self.received + _MOST_AT_ONCE
        try:
            while self.received < most:
                chunk = os.read(self._descriptor, _CHUNK)
                if not chunk:
                    return True
                self._incoming += chunk
                self.received += len(chunk)
        except BlockingIOError:
            pass
        return False


def read_frame(descriptor: int) -> bytes:
    """Wait for one message; `EOFError` where the other end is closed."""
    (size,) = _LENGTH.unpack(_read_exactly(descriptor, _LENGTH.size))
    return _read_exactly(descriptor, size)


def write_frame(descriptor: int, frame: bytes) -> None:
    """Wait until one message is sent."""
    view = memoryview(frame)
    while view:
        view = view[os.write(descriptor, view[:_CHUNK]) :]


def _read_exactly(descriptor: int, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        chunk = os.read(descriptor, min(_CHUNK, size - len(found)))
        if not chunk:
            raise EOFError
        found += chunk
    return bytes(found)
