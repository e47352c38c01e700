"""Why what CKKS opens is flooded: on a tiny ring the key falls out of one exact opening, and not out of a flooded one.

The ring is our own few lines: messages are encoded, encrypted, opened and decoded as CKKS does, with 16 dimensions.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from leakscope.sealed.flooding import ERROR_DEVIATION, error_norm, flood, flooding_deviation

N, SCALE = 16, 2.0**24
# A prime, so that nearly every ciphertext has an inverse.
Q = (1 << 61) - 1
ROOTS = np.exp(1j * np.pi * (2 * np.arange(N) + 1) / N)
POWERS = ROOTS[:, None] ** np.arange(N)


def encode(values):
    """Real numbers, two in one complex slot, as whole coefficients."""
    half = values[: N // 2] + 1j * values[N // 2 :]
    slots = np.concatenate([half, half.conj()[::-1]])
    return np.rint((POWERS.conj().T @ slots).real / N * SCALE).astype(np.int64).astype(object)


def decode(coefficients):
    slots = (POWERS @ coefficients.astype(float))[: N // 2] / SCALE
    return np.concatenate([slots.real, slots.imag])


def centred(coefficients):
    return np.array([int(c) if 2 * int(c) < Q else int(c) - Q for c in coefficients % Q], object)


def matrix(polynomial):
    """Multiplication with it modulo X^N + 1."""
    rows = [[polynomial[(i - j) % N] * (1 if i >= j else -1) for j in range(N)] for i in range(N)]
    return np.array(rows, object) % Q


def solve(left, right):
    """left · x = right modulo Q, by elimination."""
    rows = [[*map(int, row), int(value)] for row, value in zip(left, right, strict=True)]
    for place in range(N):
        pivot = next(i for i in range(place, N) if rows[i][place] % Q)
        rows[place], rows[pivot] = rows[pivot], rows[place]
        inverse = pow(rows[place][place], -1, Q)
        rows[place] = [value * inverse % Q for value in rows[place]]
        for other in range(N):
            if other != place:
                factor = rows[other][place]
                rows[other] = [(a - factor * b) % Q for a, b in zip(rows[other], rows[place], strict=True)]
    return centred(np.array([row[-1] for row in rows], object))


def encrypt(message, secret, rng):
    uniform = np.array([int(value) for value in rng.integers(0, Q, N)], object)
    error = np.array([round(value) for value in rng.normal(0, 3.2, N)], object)
    return (message + error - matrix(uniform) @ secret) % Q, uniform


def recover(ciphertext, opened):
    """The key of whoever opened `opened`: re-encoded it is m + e = c₀ + c₁ s, which is linear in s."""
    first, second = ciphertext
    return solve(matrix(second), (encode(opened) - first) % Q)


@pytest.fixture
def victim():
    rng = np.random.default_rng(0)
    secret = np.array([int(value) for value in rng.integers(-1, 2, N)], object)
    values = rng.uniform(-1, 1, N)
    ciphertext = encrypt(encode(values), secret, rng)
    opened = decode(centred(ciphertext[0] + matrix(ciphertext[1]) @ secret))
    assert np.abs(opened - values).max() < 1e-5
    return secret, ciphertext, opened


def test_one_exact_opening_gives_the_key_away(victim):
    secret, ciphertext, opened = victim
    assert recover(ciphertext, opened).tolist() == secret.tolist()


def test_no_flooded_opening_does(victim):
    secret, ciphertext, opened = victim
    deviation = flooding_deviation(N, SCALE, openings=1)
    for _ in range(20):
        found = recover(ciphertext, flood(opened, deviation))
        # Not even nearly: what comes out is spread over all of the modulus.
        assert sum(a == b for a, b in zip(found, secret, strict=True)) == 0


def test_the_noise_is_as_wide_as_the_formula_says():
    # √(12 · 100) · 2^20 · √N · 32 · √(N/2) / scale, by hand for N = 16 and scale 1.
    expected = math.sqrt(1200) * 2**20 * 4 * 32 * math.sqrt(8)
    assert flooding_deviation(16, 1.0, openings=100) == pytest.approx(expected)
    assert flooding_deviation(16, 4.0, openings=100) == pytest.approx(expected / 4)
    assert flooding_deviation(16, 1.0, openings=400) == pytest.approx(2 * expected)
    assert flooding_deviation(16, 1.0, openings=100, bits=42) == pytest.approx(2 * expected)


def test_noise_is_normal_fresh_and_never_repeats():
    stats = pytest.importorskip("scipy.stats")
    zeros = np.zeros(40_001)
    one, other = flood(zeros, 3.0), flood(zeros, 3.0)
    assert len(one) == 40_001
    assert not np.array_equal(one, other)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.03
    assert stats.kstest(one, "norm", args=(0, 3.0)).pvalue > 1e-6
    # Both halves of Box and Muller's pair: sines beside cosines are uncorrelated.
    assert abs(np.corrcoef(one[:20_000], one[20_001:])[0, 1]) < 0.04


def test_the_bound_on_seals_error_holds():
    """A fresh ciphertext of SEAL, opened without noise: its error has a little less than the deviation assumed."""
    pytest.importorskip("tenseal")
    from leakscope.sealed import ckks_engine

    engine = ckks_engine.Engine()
    public, secret = engine.make_keys()
    key, hidden_key = engine.seal.PublicKey(), engine.seal.SecretKey()
    key.load(engine.context, engine.scratch.write(public))
    hidden_key.load(engine.context, engine.scratch.write(secret))
    encryptor = engine.seal.Encryptor(engine.context, key)
    opener = engine.seal.Decryptor(engine.context, hidden_key)
    scale, errors = 2.0**40, []
    for seed in range(4):
        values = np.random.default_rng(seed).uniform(-1, 1, 4096)
        plain, hidden, found = engine.seal.Plaintext(), engine.seal.Ciphertext(), engine.seal.Plaintext()
        engine.encoder.encode(values.astype(complex).tolist(), scale, plain)
        encryptor.encrypt(plain, hidden)
        opener.decrypt(hidden, found)
        error = np.asarray(engine.encoder.decode_complex(found)) - values
        errors.append(np.concatenate([error.real, error.imag]) * scale)
    assumed = error_norm(8192)
    norms = [float(np.linalg.norm(error)) for error in errors]
    assert 0.5 * assumed < max(norms) < assumed
    deviation = np.std(np.concatenate(errors)) / math.sqrt(4096)
    assert deviation == pytest.approx(21.3, rel=0.05)
    assert deviation < ERROR_DEVIATION
