"""Noise on what was opened: without it, an opened CKKS plaintext gives the secret key away.

A CKKS ciphertext opens to the message plus a small error that depends linearly on the secret key. Whoever knows the
message and sees the exact result has the error, and from it the key (Li and Micciancio). Gaussian noise that is far
wider than any such error hides it. For κ bits against τ opened ciphertexts,

    σ = √(12 τ) · 2^(κ/2) · t,

where t bounds the Euclidean norm of the error of one ciphertext.

References:
    Li, Micciancio, "On the security of homomorphic encryption on approximate numbers", EUROCRYPT 2021.
    Li, Micciancio, Schultz, Sorrell, "Securing approximate homomorphic encryption using differential privacy",
    CRYPTO 2022.
"""

from __future__ import annotations

import math
import os

import numpy as np
from numpy.typing import NDArray

# κ: how much better than guessing, in bits, an attacker may be at telling two errors apart over all openings.
STATISTICAL_BITS = 40
# Standard deviation of one coefficient of the error of a fresh ciphertext. SEAL makes fresh ciphertexts modulo one more
# prime and drops it, which leaves rounding: √((1 + N · 2/3) / 12) = 21.3 at N = 8192; a half is added for its tail.
ERROR_DEVIATION = 32.0


def error_norm(degree: int, *, deviation: float = ERROR_DEVIATION) -> float:
    """t: the norm of one ciphertext's error over the `degree` real numbers that are read from it, at scale 1.

    A coefficient error of deviation e is one of e · √(degree / 2) in the real and imaginary part of every slot.
    """
    return math.sqrt(degree) * deviation * math.sqrt(degree / 2)


def flooding_deviation(degree: int, scale: float, *, openings: int, bits: int = STATISTICAL_BITS) -> float:
    """σ of the noise on a weighted mean, for so many opened ciphertexts in all."""
    return math.sqrt(12 * openings) * 2 ** (bits / 2) * error_norm(degree) / scale


def flood(values: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    """`values` with Gaussian noise from the system's randomness: a generator that can be seeded can be repeated."""
    count = len(values) + len(values) % 2
    drawn = np.frombuffer(os.urandom(8 * count), np.uint64)
    # In (0, 1]: the logarithm of 0 is not a number.
    uniform = ((drawn >> np.uint64(11)).astype(np.float64) + 1) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log(uniform[: count // 2])), 2 * np.pi * uniform[count // 2 :]
    noise = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return values + deviation * noise[: len(values)]
