"""Keys that tests share: short ones, which only tests may have."""

from __future__ import annotations

from functools import cache

from leakscope.sealed.ckks import CkksKeys
from leakscope.sealed.keys import SealingLimits
from leakscope.sealed.paillier import UnsafePaillierKeys

SCHEMES = ("paillier", "ckks")


@cache
def short_keys(bits=512, *, bound=16.0, pieces=2**18, fraction_bits=24):
    return UnsafePaillierKeys.generate(bits, SealingLimits(bound=bound, pieces=pieces), fraction_bits=fraction_bits)


@cache
def ckks_keys():
    return CkksKeys.generate(SealingLimits())


def keys_of(scheme):
    return ckks_keys() if scheme == "ckks" else short_keys()
