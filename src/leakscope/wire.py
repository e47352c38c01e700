"""Named tensors as bytes on the wire, without loss: every tensor in the smallest form that was found for it.

A tensor is sent as its entries other than zero (all, or with a bitmap or gaps that say where they are), and those as
they are or by numbers of a palette of distinct values. Equal means equal to the bit: −0.0 is a value, as is every NaN.

    message = "LSW1", count, tensors;  tensor = name, dtype, shape, form, payload
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakscope.errors import BadInputError
from leakscope.types import Tensors

MAGIC = b"LSW1"
# A hostile message of a few bytes may promise any number of zeros.
MOST_BYTES = 2 * 1024**3
# More distinct values than this need codes nearly as long as the values.
MOST_COLOURS = 1 << 16
# A tensor whose first entries are nearly all distinct is not searched for a palette: sorting it would cost more time.
PROBE = 2048

_DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
)
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
# Whole numbers of the same size that torch and numpy both have.
_SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ALL, _BITMAP, _GAPS = range(3)
_RAW, _PALETTE = range(2)

Words = NDArray[np.unsignedinteger]


def encode(tensors: Tensors) -> bytes:
    """The tensors as bytes, names and shapes included; on any device, always little-endian."""
    parts = [MAGIC, _varint(len(tensors))]
    for name, value in tensors.items():
        if value.dtype not in _DTYPES:
            raise BadInputError(f"{name!r} is of dtype {value.dtype}, which has no code on the wire; convert it first")
        title = name.encode()
        shape = b"".join(map(_varint, (value.ndim, *value.shape)))
        form, payload = _smallest(_words(value))
        code = bytes([_DTYPES.index(value.dtype), form])
        parts += [_varint(len(title)), title, shape, code, _varint(len(payload)), payload]
    return b"".join(parts)


def decode(message: bytes, *, most_bytes: int = MOST_BYTES) -> dict[str, Tensor]:
    """The tensors of a message, on the processor; one that `encode` did not write is refused."""
    reader = _Reader(message)
    if reader.take(len(MAGIC)) != MAGIC:
        raise _damaged("it does not begin with LSW1")
    found: dict[str, Tensor] = {}
    for _ in range(reader.count()):
        try:
            name = reader.take(reader.count()).decode()
        except UnicodeDecodeError as error:
            raise _damaged("a name is not UTF-8") from error
        shape = [reader.count() for _ in range(reader.count(most=64))]
        dtype_code, form = reader.take(2)
        if dtype_code >= len(_DTYPES) or form > 2 * _GAPS + _PALETTE or name in found:
            raise _damaged(f"{name!r} comes twice, or is of an unknown kind")
        dtype = _DTYPES[dtype_code]
        most_bytes -= prod(shape) * dtype.itemsize
        if most_bytes < 0:
            raise BadInputError("the message holds more than most_bytes; raise that limit if you trust who sent it")
        words = _restore(_Reader(reader.take(reader.count())), prod(shape), form, _WORDS[dtype.itemsize])
        signed = words.view(words.dtype.str.replace("u", "i")).copy()
        found[name] = torch.from_numpy(signed).view(dtype).reshape(shape)
    reader.finish()
    return found


def _words(value: Tensor) -> Words:
    """The bits of every entry as whole numbers."""
    size = value.dtype.itemsize
    return value.detach().cpu().contiguous().reshape(-1).view(_SIGNED[size]).numpy().view(_WORDS[size])


def _smallest(words: Words) -> tuple[int, bytes]:
    """Number of the form, and what is sent in it."""
    places = np.flatnonzero(words)
    nonzero = words[places]
    coded = [_values(words), _values(nonzero)]
    forms = [(2 * _ALL + coded[0][0], coded[0][1])]
    if len(places) < len(words):
        marks = np.zeros(len(words), np.uint8)
        marks[places] = 1
        where = {_BITMAP: np.packbits(marks).tobytes(), _GAPS: _pack_gaps(places)}
        count = _varint(len(places))
        forms += [(2 * kind + coded[1][0], count + said + coded[1][1]) for kind, said in where.items()]
    return min(forms, key=lambda form: len(form[1]))


def _restore(reader: _Reader, entries: int, form: int, kind: type[np.unsignedinteger]) -> Words:
    where, how = divmod(form, 2)
    if where == _ALL:
        words = _read_values(reader, entries, how, kind)
        reader.finish()
        return words
    count = reader.count(most=entries)
    if where == _BITMAP:
        marks = np.unpackbits(np.frombuffer(reader.take(-(-entries // 8)), np.uint8))
        places = np.flatnonzero(marks)
    else:
        places = _read_gaps(reader, count)
    if len(places) != count or (count and int(places[-1]) >= entries):
        raise _damaged("its entries lie outside their tensor")
    words = np.zeros(entries, kind)
    words[places] = _read_values(reader, count, how, kind)
    reader.finish()
    return words


def _values(words: Words) -> tuple[int, bytes]:
    """As they are, or as a palette and the number of each in it, whichever is shorter."""
    raw = words.tobytes()
    first = words[:PROBE]
    if len(words) == 0 or (len(words) > PROBE and len(np.unique(first)) > PROBE // 2):
        return _RAW, raw
    colours, codes = np.unique(words, return_inverse=True)
    if len(colours) > MOST_COLOURS:
        return _RAW, raw
    packed = _varint(len(colours)) + colours.tobytes() + _pack_codes(codes, _width(len(colours)))
    return (_PALETTE, packed) if len(packed) < len(raw) else (_RAW, raw)


def _read_values(reader: _Reader, count: int, how: int, kind: type[np.unsignedinteger]) -> Words:
    size = np.dtype(kind).itemsize
    if how == _RAW:
        return np.frombuffer(reader.take(count * size), kind)
    number = reader.count(most=MOST_COLOURS)
    colours = np.frombuffer(reader.take(number * size), kind)
    width = _width(number)
    bits = np.unpackbits(np.frombuffer(reader.take(-(-count * width // 8)), np.uint8))[: count * width]
    weights = 1 << np.arange(width - 1, -1, -1, dtype=np.int64)
    codes = bits.reshape(count, width) @ weights
    if number == 0 or (count and int(codes.max(initial=0)) >= number):
        raise _damaged("a value lies outside its palette")
    return colours[codes]


def _width(colours: int) -> int:
    """Bits of a code; none where there is nothing to choose."""
    return max(0, (colours - 1).bit_length())


def _pack_codes(codes: NDArray[np.integer], width: int) -> bytes:
    shifts = np.arange(width - 1, -1, -1)
    return np.packbits(((codes.reshape(-1, 1) >> shifts) & 1).astype(np.uint8)).tobytes()


def _pack_gaps(places: NDArray[np.integer]) -> bytes:
    """Distances between neighbours, seven bits to a byte, the high bit set where another byte follows."""
    gaps = np.diff(places, prepend=-1) - 1
    columns = []
    for group in range(10):
        rest = gaps >> (7 * group)
        # 256 marks a byte that is not sent.
        columns.append(np.where((group > 0) & (rest == 0), 256, (rest & 127) | ((rest > 127) << 7)))
        if not (rest > 127).any():
            break
    rows = np.stack(columns, axis=1).reshape(-1)
    return rows[rows < 256].astype(np.uint8).tobytes()


def _read_gaps(reader: _Reader, count: int) -> NDArray[np.int64]:
    gaps = np.fromiter((reader.count() for _ in range(count)), np.int64, count)
    # Not yet added up: the sum of hostile gaps may overflow.
    if count and float(gaps.astype(float).sum()) > 2**62:
        raise _damaged("its entries lie outside their tensor")
    return np.cumsum(gaps + 1) - 1


@dataclass
class _Reader:
    """Takes a message apart from the front and refuses to read past its end."""

    message: bytes
    place: int = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        if count > len(self.message) - self.place:
            raise _damaged("it ends too early")
        self.place += count
        return self.message[self.place - count : self.place]

    def count(self, *, most: int = 2**62) -> int:
        """The next whole number, at most `most`."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                break
        if value > most or byte >= 128:  # pyright: ignore[reportPossiblyUnboundVariable]
            raise _damaged("a number is larger than it can be")
        return value

    def finish(self) -> None:
        """Insist that nothing is left."""
        if self.place != len(self.message):
            raise _damaged("bytes are left over")


def _varint(value: int) -> bytes:
    return bytes(_seven_bits(value))


def _seven_bits(value: int) -> Iterator[int]:
    while value > 127:
        yield (value & 127) | 128
        value >>= 7
    yield value


def _damaged(why: str) -> BadInputError:
    return BadInputError(f"not a message of leakscope.wire: {why}; send the bytes as encode() returned them")
