"""Paillier's cryptosystem with packed values and a short random exponent, on gmpy2.

Encryption of M is (1 + M n) · hₛ^r mod n², where hₛ = h^n, h = −x² and r is random of half the length of n: that r may
be so short, and the base always the same, is due to Damgård, Jurik and Nielsen. A table of powers of the base then
replaces all squarings. The primes have to be 3 modulo 4 with nothing but 2 in common in p − 1 and q − 1, which is why
keys are made here.

References:
    Paillier, "Public-key cryptosystems based on composite degree residuosity classes", EUROCRYPT 1999.
    Damgård, Jurik, Nielsen, "A generalization of Paillier's public-key system with applications to electronic voting",
    International Journal of Information Security 9, 2010, section 4.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from leakscope.errors import UsageError
from leakscope.sealed.keys import OpeningKeys, PayloadError, SealingKey, SealingLimits, Values
from leakscope.sealed.large_numbers import library, power_table, random_prime
from leakscope.sealed.packing import Packing

LEAST_BITS, USUAL_BITS, MOST_BITS = 2048, 3072, 8192


@dataclass(frozen=True)
class PaillierSealingKey(SealingKey):
    """n, hₛ and how values are packed."""

    modulus: int
    base: int
    limits: SealingLimits
    fraction_bits: int = 24
    scheme: str = "paillier"

    def __post_init__(self) -> None:
        if self.scheme != UnsafePaillierKeys.scheme and not LEAST_BITS <= self.bits <= MOST_BITS:
            raise UsageError(_refusal(self.bits))
        if self.slots < 1:
            raise UsageError(f"a key of {self.bits} bits has no room for one value of {self.packing.slot_bytes} bytes")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.scheme}, {self.bits} bits, {self.fingerprint[:8]}>"

    @property
    def bits(self) -> int:
        """Length of n."""
        return self.modulus.bit_length()

    @cached_property
    def packing(self) -> Packing:
        """How values share one number."""
        return Packing(self.limits.bound, self.fraction_bits, self.limits.pieces)

    @property
    def slots(self) -> int:
        """Values in one ciphertext."""
        return self.packing.slots(self.bits)

    @property
    def precision(self) -> float:
        """Half a unit of the fixed-point numbers; what follows is exact."""
        return 2.0 ** -(self.fraction_bits + 1)

    @property
    def ciphertext_bytes(self) -> int:
        """Size of one ciphertext."""
        return -(-2 * self.bits // 8)

    def encrypt(self, values: Values) -> bytes:
        """Ciphertexts of as many values each as fit."""
        gmp = library()
        square, size = gmp.mpz(self.modulus) ** 2, self.ciphertext_bytes
        length = -(-self.bits // 2)
        table = power_table(self.base, self.modulus, length, uses=-(-len(values) // self.slots))
        found = bytearray()
        for number in self.packing.pack(values, self.slots):
            hidden = (1 + gmp.mpz(number) * self.modulus) * table.power(secrets.randbits(length)) % square
            found += int(hidden).to_bytes(size, "big")
        return bytes(found)

    def check(self, payload: bytes, *, count: int) -> None:
        """As many numbers below n², none of which shares a factor with n."""
        self.read(payload, count=count)

    def add(self, payloads: Sequence[bytes], numbers: Sequence[int], *, count: int) -> bytes:
        """Π cᵢ^kᵢ mod n², ciphertext by ciphertext."""
        gmp = library()
        square = gmp.mpz(self.modulus) ** 2
        totals = [gmp.mpz(1)] * -(-count // self.slots)
        for place, (payload, number) in enumerate(zip(payloads, numbers, strict=True)):
            for block, one in enumerate(self.read(payload, count=count, place=place)):
                power = one if number == 1 else gmp.powmod(one, number, square)
                totals[block] = totals[block] * power % square
        return b"".join(int(total).to_bytes(self.ciphertext_bytes, "big") for total in totals)

    def read(self, payload: bytes, *, count: int, place: int = 0) -> list[Any]:
        """The ciphertexts of a payload as numbers, each of them one that this key can have made."""
        gmp = library()
        size, blocks = self.ciphertext_bytes, -(-count // self.slots)
        if len(payload) != blocks * size:
            raise PayloadError(
                place, "truncated", f"expected {blocks:,} ciphertexts of {size} bytes, got {len(payload):,} bytes"
            )
        square, product, found = gmp.mpz(self.modulus) ** 2, gmp.mpz(1), []
        for start in range(0, len(payload), size):
            one = gmp.mpz(int.from_bytes(payload[start : start + size], "big"))
            if not 0 < one < square:
                raise PayloadError(place, "malformed", f"ciphertext {start // size} lies outside 1 … n² − 1")
            product = product * one % self.modulus
            found.append(one)
        # One test for all: a number that shares a factor with n would give the key away, and is none of ours.
        if gmp.gcd(product, self.modulus) != 1:
            raise PayloadError(place, "malformed", "a ciphertext shares a factor with the key")
        return found

    def _fields(self) -> dict[str, Any]:
        return {"modulus": f"{self.modulus:x}", "base": f"{self.base:x}", "fraction_bits": self.fraction_bits}


class PaillierKeys(OpeningKeys):
    """n = p · q with both primes."""

    scheme: ClassVar[str] = "paillier"

    def __init__(self, p: int, q: int, public: PaillierSealingKey) -> None:
        if p * q != public.modulus or p == q:
            raise UsageError("these primes do not belong to that public key; make new keys")
        self._p, self._q, self._public = p, q, public

    @classmethod
    def generate(cls, bits: int, limits: SealingLimits, *, fraction_bits: int = 24) -> PaillierKeys:
        """New keys from the system's randomness."""
        gmp = library()
        while True:
            p, q = random_prime(bits - bits // 2), random_prime(bits // 2)
            if p != q and gmp.gcd(p - 1, q - 1) == 2 and gmp.gcd(p * q, (p - 1) * (q - 1)) == 1:
                break
        n = p * q
        x = secrets.randbelow(int(n) - 2) + 2
        base = gmp.powmod(n - gmp.powmod(x, 2, n), n, n * n)
        return cls(int(p), int(q), PaillierSealingKey(int(n), int(base), limits, fraction_bits, cls.scheme))

    @property
    def public(self) -> PaillierSealingKey:
        """What goes to everyone."""
        return self._public

    def decrypt(self, payload: bytes, *, count: int, pieces: int) -> Values:
        """Modulo p² and q² apart, then put together; exact, so nothing of the key is in the result."""
        public = self._public
        ciphertexts = public.read(payload, count=count)
        try:
            sums = public.packing.unpack(map(self._open, ciphertexts), count, slots=public.slots)
            return public.packing.decode(sums, pieces)
        except OverflowError as error:
            raise PayloadError(
                0,
                "out of range",
                f"{error}: it was sealed with another key, or a client sealed values beyond the bound",
            ) from error

    def _open(self, ciphertext: Any) -> int:
        """The signed number in a ciphertext."""
        gmp, half = library(), self._halves
        parts = [
            (gmp.powmod(ciphertext, prime - 1, prime * prime) - 1) // prime * inverse % prime for prime, inverse in half
        ]
        (p, _), (q, _) = half
        number = parts[0] + p * ((parts[1] - parts[0]) * self._crt % q)
        return int(number if 2 * number < self._public.modulus else number - self._public.modulus)

    @cached_property
    def _halves(self) -> list[tuple[Any, Any]]:
        """Each prime with the inverse of L((1 + n)^(prime − 1))."""
        gmp, n = library(), self._public.modulus
        found = []
        for prime in (gmp.mpz(self._p), gmp.mpz(self._q)):
            lifted = (gmp.powmod(n + 1, prime - 1, prime * prime) - 1) // prime
            found.append((prime, gmp.invert(lifted, prime)))
        return found

    @cached_property
    def _crt(self) -> Any:
        return library().invert(self._p, self._q)

    def secret_fields(self) -> dict[str, Any]:
        """Both primes."""
        return {"p": f"{self._p:x}", "q": f"{self._q:x}"}


class UnsafePaillierKeys(PaillierKeys):
    """Keys of any length, for tests: short ones are factored in seconds."""

    scheme: ClassVar[str] = "unsafe-paillier"


def check_bits(bits: int, *, legacy: bool) -> None:
    """Refuse keys that are too short, and those below today's usual length unless that is asked for."""
    if isinstance(bits, bool) or not isinstance(bits, int) or not LEAST_BITS <= bits <= MOST_BITS or bits % 2:
        raise UsageError(_refusal(bits))
    if bits < USUAL_BITS and not legacy:
        raise UsageError(
            f"a Paillier key of {bits} bits is below the usual {USUAL_BITS}; give legacy=True if it must be that short"
        )


def _refusal(bits: int) -> str:
    return (
        f"a Paillier key needs {LEAST_BITS} to {MOST_BITS} bits, an even number, got {bits}; one of 128 bits is "
        f"factored in seconds. Leave bits out for {USUAL_BITS}"
    )
