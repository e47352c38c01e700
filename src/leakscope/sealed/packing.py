"""Many fixed-point numbers in one large whole number, with room for weights, signs and carries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leakscope.errors import UsageError

# Of a slot beside the value itself: its sign, and one bit by which a value out of range is noticed.
_SIGN_AND_GUARD = 2
# A slot is read as one machine word, of which it must leave the sign free.
_MOST_BYTES = 7
_WORD = 8


@dataclass(frozen=True)
class Packing:
    """x becomes round(x · 2^f) in a slot of whole bytes; Σ kᵢ xᵢ with Σ kᵢ ≤ pieces stays inside its slot.

    A slot holds any sum of magnitude up to pieces · bound · 2^f, its sign and one bit more. A negative slot borrows
    from its neighbour: the whole number is M = Σⱼ qⱼ 2^(sj) with signed qⱼ, and adding 2^(s−1) to every slot of the
    result undoes all borrows at once.

    Attributes:
        bound: largest magnitude that may be sealed, a power of two.
        fraction_bits: f; what is sealed is exact to 2^−(f+1).
        pieces: largest sum of whole-number weights.
    """

    bound: float
    fraction_bits: int
    pieces: int

    def __post_init__(self) -> None:
        if self.pieces < 1 or self.fraction_bits < 1 or self.slot_bytes > _MOST_BYTES:
            raise UsageError(
                f"bound={self.bound}, fraction_bits={self.fraction_bits} and pieces={self.pieces} need "
                f"{self._needed_bits} bits a value, expected at most {8 * _MOST_BYTES}; lower one of them"
            )

    @property
    def _needed_bits(self) -> int:
        value = self.fraction_bits + math.frexp(self.bound)[1] - 1
        return max(value, 1) + (self.pieces - 1).bit_length() + _SIGN_AND_GUARD

    @property
    def slot_bytes(self) -> int:
        """Bytes of one value."""
        return -(-self._needed_bits // 8)

    @property
    def largest(self) -> int:
        """Largest magnitude of an encoded value."""
        return int(self.bound * 2**self.fraction_bits)

    def slots(self, modulus_bits: int) -> int:
        """How many values fit into one number that must stay below half of a modulus of so many bits."""
        return (modulus_bits - 2) // (8 * self.slot_bytes)

    def pack(self, values: NDArray[np.float64], slots: int) -> Iterator[int]:
        """Whole numbers that hold `slots` values each; the last is filled up with zeros."""
        encoded = np.rint(values * 2.0**self.fraction_bits).astype(np.int64)
        padded = np.zeros(-(-len(values) // slots) * slots, np.int64)
        padded[: len(values)] = encoded
        lifted = (padded + self._half).astype("<u8").view(np.uint8).reshape(len(padded), _WORD)
        rows = lifted[:, : self.slot_bytes].reshape(-1, slots * self.slot_bytes)
        offset = self._offset(slots)
        for row in rows:
            yield int.from_bytes(row.tobytes(), "little") - offset

    def unpack(self, numbers: Iterator[int], count: int, *, slots: int) -> NDArray[np.int64]:
        """The encoded sums in the first `count` slots of numbers that were packed and added up."""
        width, offset = slots * self.slot_bytes, self._offset(slots)
        rows = bytearray()
        for number in numbers:
            lifted = number + offset
            if lifted < 0 or lifted >> (8 * width):
                raise OverflowError("a sum does not fit its number")
            rows += lifted.to_bytes(width, "little")
        found = np.zeros((len(rows) // self.slot_bytes, _WORD), np.uint8)
        found[:, : self.slot_bytes] = np.frombuffer(rows, np.uint8).reshape(-1, self.slot_bytes)
        return (found.view("<u8").reshape(-1)[:count] - np.uint64(self._half)).astype(np.int64)

    def decode(self, sums: NDArray[np.int64], pieces: int) -> NDArray[np.float64]:
        """Weighted means: sums over `pieces` and the scale."""
        if len(sums) and int(np.abs(sums).max()) > pieces * self.largest:
            raise OverflowError("a sum is larger than its weights allow")
        return sums.astype(np.float64) / (float(pieces) * 2.0**self.fraction_bits)

    @property
    def _half(self) -> int:
        return 1 << (8 * self.slot_bytes - 1)

    def _offset(self, slots: int) -> int:
        return sum(self._half << (8 * self.slot_bytes * slot) for slot in range(slots))
