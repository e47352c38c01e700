"""New keys by the name of their scheme."""

from __future__ import annotations

from leakscope.errors import UsageError, suggest
from leakscope.sealed.ckks import SCHEME as CKKS
from leakscope.sealed.ckks import USUAL_OPENINGS, CkksKeys
from leakscope.sealed.keys import OpeningKeys, SealingLimits
from leakscope.sealed.paillier import USUAL_BITS, PaillierKeys, check_bits

_USUAL = SealingLimits()
_USUAL_FRACTION = 24
_CKKS_PIECES = 2**30
_SCHEMES = (PaillierKeys.scheme, CKKS)


def keygen(
    scheme: str = PaillierKeys.scheme,
    *,
    bits: int | None = None,
    legacy: bool = False,
    bound: float = _USUAL.bound,
    pieces: int | None = None,
    clients: int = _USUAL.clients,
    fraction_bits: int | None = None,
    openings: int | None = None,
) -> OpeningKeys:
    """New keys, from the system's randomness; `keys.public` goes to everyone, the rest to nobody who adds up.

    Args:
        scheme: "paillier", exact to the fixed point, small and slow; or "ckks", fast and large.
        bits: Of a Paillier key: 3072 unless told otherwise. Fewer than 2048 are refused.
        legacy: Allow Paillier keys of 2048 up to 3072 bits.
        bound: Largest magnitude of a value, a power of two.
        pieces: What weights are divided into: each is exact to one piece of their sum. 2¹⁸ for Paillier, where every
            bit takes room in a ciphertext, and 2³⁰ for CKKS, where it does not.
        clients: How many updates may be added up.
        fraction_bits: Of Paillier's fixed-point numbers, 24 unless told otherwise.
        openings: How many ciphertexts of 8,192 values CKKS keys may open in all; the more, the noisier each of them.

    Example:
        >>> keygen("paillier", bits=128)
        Traceback (most recent call last):
        ...
        leakscope.errors.UsageError: a Paillier key needs 2048 to 8192 bits, an even number, got 128; one of 128 bits \
is factored in seconds. Leave bits out for 3072
    """
    if scheme not in _SCHEMES:
        raise UsageError(f"unknown scheme {scheme!r}.{suggest(scheme, _SCHEMES)}")
    usual = _CKKS_PIECES if scheme == CKKS else _USUAL.pieces
    limits = SealingLimits(bound, usual if pieces is None else pieces, clients)
    if scheme == CKKS:
        if bits is not None or legacy or fraction_bits is not None:
            raise UsageError("bits, legacy and fraction_bits are options of 'paillier', drop them for 'ckks'")
        return CkksKeys.generate(limits, openings=USUAL_OPENINGS if openings is None else openings)
    if openings is not None:
        raise UsageError(
            "openings is an option of 'ckks': what Paillier opens is exact and gives nothing away, drop it"
        )
    length = USUAL_BITS if bits is None else bits
    check_bits(length, legacy=legacy)
    return PaillierKeys.generate(
        length, limits, fraction_bits=_USUAL_FRACTION if fraction_bits is None else fraction_bits
    )
