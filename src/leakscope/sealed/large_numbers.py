"""Arithmetic on large whole numbers: the sole importer of gmpy2, powers of one base from a table, random primes."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from leakscope.errors import MissingExtraError, install_line

# Width of a digit. Wider ones pay off only for very many ciphertexts, and their table takes more memory than those do.
_WINDOWS = range(2, 9)


def library() -> Any:
    """The package gmpy2."""
    try:
        import gmpy2
    except ImportError as error:
        raise MissingExtraError(
            f"sealing with Paillier needs the package gmpy2; install it {install_line('he')}"
        ) from error
    return gmpy2


@dataclass(frozen=True)
class PowerTable:
    """base^(d · 2^(w j)) for every digit d at every place j."""

    rows: tuple[tuple[Any, ...], ...]
    window: int
    square: Any

    def power(self, exponent: int) -> Any:
        """The base to a power, one multiplication a digit."""
        found, mask = self.rows[0][0], (1 << self.window) - 1
        for row in self.rows:
            digit = exponent & mask
            exponent >>= self.window
            if digit:
                found = found * row[digit] % self.square
        return found


def _window(count: int, length: int) -> int:
    """The width of a digit for which making the table and using it `count` times is cheapest."""
    return min(_WINDOWS, key=lambda width: -(-length // width) * (2**width + count))


def power_table(base: int, modulus: int, length: int, *, uses: int) -> PowerTable:
    """Powers of `base` modulo `modulus`² for exponents of `length` bits, as large a table as so many uses pay for."""
    return _table(base, modulus, length, _window(uses, length))


@lru_cache(maxsize=2)
def _table(base: int, modulus: int, length: int, window: int) -> PowerTable:
    gmp = library()
    square = gmp.mpz(modulus) ** 2
    unit, rows = gmp.mpz(base), list[tuple[Any, ...]]()
    for _ in range(-(-length // window)):
        row = [gmp.mpz(1)]
        for _ in range(2**window):
            row.append(row[-1] * unit % square)
        unit = row.pop()
        rows.append(tuple(row))
    return PowerTable(tuple(rows), window, square)


def random_prime(bits: int) -> Any:
    """A random prime that is 3 modulo 4, with its two highest bits set so that a product has its full length."""
    gmp = library()
    while True:
        found = gmp.next_prime(gmp.mpz(secrets.randbits(bits)) | (3 << (bits - 2)))
        if found % 4 == 3 and found.bit_length() == bits:
            return found
