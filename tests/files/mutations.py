"""Ways to damage a file, from a flipped bit to a number that no memory can hold."""

from __future__ import annotations

import gzip
import io
import random
import re
import zipfile
import zlib
from collections.abc import Callable, Sequence

_EXTREMES = (b"\0" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff" * 8, b"\0" * 64, b"PK\1\2", b"-1", b"{", b"[" * 40)
_NUMBERS = (
    b"0",
    b"-1",
    b"1e999",
    b"NaN",
    b"Infinity",
    b"null",
    b"[]",
    b'"x"',
    b"4294967296",
    b"1000000000000",
    b"9223372036854775808",
    b"9" * 30,
    b"9" * 6000,
)
_NUMBER = re.compile(rb"-?\d+")
_PAIR = re.compile(rb'"[a-z_]{1,20}\\?": ?(?:\d+|"[^"]{0,40}"|null|true|false)|^ *[a-z_]+: .*$', re.MULTILINE)

Mutation = Callable[[bytes, random.Random, Sequence[bytes]], bytes]


def flip(data: bytes, dice: random.Random, _others: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.randint(1, 8)):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def truncate(data: bytes, dice: random.Random, _others: Sequence[bytes]) -> bytes:
    return data[: dice.randrange(len(data))]


def splice(data: bytes, dice: random.Random, others: Sequence[bytes]) -> bytes:
    """Put a piece of another kind of file, or of this one, somewhere."""
    other = dice.choice((*others, data))
    begin, at = dice.randrange(len(other)), dice.randrange(len(data) + 1)
    piece = other[begin : begin + dice.choice((4, 64, 1024))]
    return data[:at] + piece + data[at + dice.choice((0, len(piece))) :]


def enlarge(data: bytes, dice: random.Random, others: Sequence[bytes]) -> bytes:
    """Replace a number that is written out by one that is hard to bear."""
    found = list(_NUMBER.finditer(data[:200_000]))
    if not found:
        return overwrite(data, dice, others)
    spot = dice.choice(found)
    return refit(data, data[: spot.start()] + dice.choice(_NUMBERS) + data[spot.end() :])


def repeat(data: bytes, dice: random.Random, others: Sequence[bytes]) -> bytes:
    """Give a key twice."""
    found = list(_PAIR.finditer(data[:200_000]))
    if not found:
        return splice(data, dice, others)
    spot = dice.choice(found)
    between = b"\n" if b": " in spot[0] and not spot[0].startswith(b'"') else b","
    return refit(data, data[: spot.end()] + between + spot[0] + data[spot.end() :])


def overwrite(data: bytes, dice: random.Random, _others: Sequence[bytes]) -> bytes:
    extreme, at = dice.choice(_EXTREMES), dice.randrange(len(data))
    return data[:at] + extreme + data[at + len(extreme) :]


def inside(data: bytes, dice: random.Random, others: Sequence[bytes]) -> bytes:
    """Change what is packed, and pack it again with lengths and checksums that fit."""
    change = dice.choice((flip, truncate, splice, enlarge, overwrite))
    if data.startswith(b"\x1f\x8b"):
        return _inside_gzip(data, lambda content: change(content, dice, others))
    if data.startswith(b"PK\3\4"):
        return _inside_zip(data, dice, lambda content: change(content, dice, others))
    return change(data, dice, others)


def _inside_gzip(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    try:
        return gzip.compress(change(gzip.decompress(data)), mtime=0)
    except (OSError, EOFError, zlib.error, ValueError):
        # Damaged by an earlier change.
        return data


def _inside_zip(data: bytes, dice: random.Random, change: Callable[[bytes], bytes]) -> bytes:
    buffer = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
            members = [member for member in old.infolist() if member.file_size]
            chosen = dice.choice(members)
            for member in old.infolist():
                content = old.read(member)
                if member is chosen:
                    # The first 128 bytes of an array are its header; there most changes matter.
                    head = 128 if member.filename.endswith(".npy") else len(content)
                    content = change(content[:head]) + content[head:]
                new.writestr(zipfile.ZipInfo(member.filename), content)
    except (
        zipfile.BadZipFile,
        OSError,
        EOFError,
        ValueError,
        IndexError,
        NotImplementedError,
        RuntimeError,
        zlib.error,
    ):
        return data
    return buffer.getvalue()


def refit(old: bytes, new: bytes) -> bytes:
    """Correct the length that a safetensors file begins with, so that a change inside its header is reached."""
    length = int.from_bytes(old[:8], "little")
    if old[8:9] != b"{" or length > len(old):
        return new
    return max(0, length + len(new) - len(old)).to_bytes(8, "little") + new[8:]


MUTATIONS: tuple[Mutation, ...] = (flip, truncate, splice, enlarge, repeat, overwrite, inside, inside)
