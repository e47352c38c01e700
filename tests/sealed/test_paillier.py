from __future__ import annotations

import numpy as np
import pytest
from sealing_keys import short_keys

from leakscope.errors import UsageError
from leakscope.sealed.keys import PayloadError, SealingLimits
from leakscope.sealed.new_keys import keygen
from leakscope.sealed.paillier import PaillierKeys, PaillierSealingKey, UnsafePaillierKeys

gmpy2 = pytest.importorskip("gmpy2")
VALUES = np.array([1.5, -2.25, 0.0, 16.0, -16.0, 1e-7, 3.0])


def ciphertexts(public, payload):
    size = public.ciphertext_bytes
    return [int.from_bytes(payload[start : start + size], "big") for start in range(0, len(payload), size)]


def test_what_is_sealed_opens_to_the_fixed_point():
    keys = short_keys()
    found = keys.decrypt(keys.public.encrypt(VALUES), count=len(VALUES), pieces=1)
    assert np.abs(found - VALUES).max() <= keys.public.precision == 2.0**-25
    assert found[:5].tolist() == VALUES[:5].tolist()


def test_a_weighted_sum_is_exact_in_the_fixed_point():
    keys = short_keys()
    rows = [np.rint(np.random.default_rng(place).uniform(-16, 16, 23) * 2**24) / 2**24 for place in range(4)]
    numbers = (3, 0, 1, 100)
    total = keys.public.add([keys.public.encrypt(row) for row in rows], numbers, count=23)
    expected = sum(number * row for number, row in zip(numbers, rows, strict=True)) / 104
    assert np.abs(keys.decrypt(total, count=23, pieces=104) - expected).max() < 1e-12


def test_another_library_opens_our_ciphertexts():
    """python-phe knows nothing of packing: it must find the packed number itself, negative ones as n − |M|."""
    phe = pytest.importorskip("phe")
    keys = short_keys()
    public, secret = keys.public, keys.secret_fields()
    theirs = phe.PaillierPublicKey(public.modulus)
    opener = phe.PaillierPrivateKey(theirs, int(secret["p"], 16), int(secret["q"], 16))
    packed = list(public.packing.pack(VALUES, public.slots))
    found = [opener.raw_decrypt(one) for one in ciphertexts(public, public.encrypt(VALUES))]
    assert found == [number % public.modulus for number in packed]


def test_two_encryptions_of_the_same_differ_in_every_ciphertext():
    public = short_keys().public
    one, other = (ciphertexts(public, public.encrypt(np.zeros(40))) for _ in range(2))
    assert len(set(one) | set(other)) == len(one) + len(other)
    # Nothing is sent without its random factor: 1 + M n alone is no ciphertext.
    assert all(number % public.modulus != 1 for number in one)


def test_the_random_factor_is_an_nth_power_of_half_length():
    """c · (1 + M n)⁻¹ = hₛ^r: raised to λ it is 1 modulo n², or it would change the message."""
    keys = short_keys()
    public, secret = keys.public, keys.secret_fields()
    p, q = (int(secret[name], 16) for name in "pq")
    hidden = ciphertexts(public, public.encrypt(np.zeros(1)))[0]
    assert pow(hidden, (p - 1) * (q - 1), public.modulus**2) == 1
    assert (p % 4, q % 4) == (3, 3)
    assert gmpy2.gcd(p - 1, q - 1) == 2
    assert gmpy2.is_prime(p)
    assert gmpy2.is_prime(q)


def test_powers_from_the_table_are_powers():
    from leakscope.sealed.large_numbers import power_table

    for uses in (1, 100, 100_000):
        table = power_table(12345, 10007, 61, uses=uses)
        for exponent in (0, 1, 2**61 - 1, 0x1234567890ABCDE):
            assert table.power(exponent) == pow(12345, exponent, 10007**2)


@pytest.mark.parametrize("bits", [128, 512, 1024, 2047, 0, -3072, 2049])
def test_short_keys_are_refused(bits):
    with pytest.raises(UsageError, match="needs 2048 to 8192 bits"):
        keygen("paillier", bits=bits, legacy=True)


def test_2048_bits_need_to_be_asked_for():
    with pytest.raises(UsageError, match="below the usual 3072; give legacy=True"):
        keygen("paillier", bits=2048)


def test_the_configuration_of_the_fedboosting_release_is_refused():
    # FACTS: KEY_LENGTH 128, factored in 12.5 s by a sieve in pure Python.
    with pytest.raises(UsageError, match="128 bits is factored in seconds"):
        keygen("paillier", bits=128)


def test_a_short_key_passes_as_unsafe_only():
    unsafe = short_keys().public
    with pytest.raises(UsageError, match="needs 2048"):
        PaillierSealingKey(unsafe.modulus, unsafe.base, unsafe.limits)
    assert unsafe.scheme == "unsafe-paillier"
    assert type(short_keys()) is UnsafePaillierKeys


@pytest.mark.parametrize("change", ["cut", "longer", "empty", "zero", "too large", "factor"])
def test_payloads_that_no_client_made_are_refused(change):
    keys = short_keys()
    public, good = keys.public, keys.public.encrypt(VALUES)
    size = public.ciphertext_bytes
    p = int(keys.secret_fields()["p"], 16)
    bad = {
        "cut": good[:-1],
        "longer": good + b"\0",
        "empty": b"",
        "zero": bytes(size) + good[size:],
        "too large": (public.modulus**2).to_bytes(size, "big") + good[size:],
        "factor": p.to_bytes(size, "big") + good[size:],
    }[change]
    for use in (
        lambda: public.add([good, bad], (1, 1), count=len(VALUES)),
        lambda: keys.decrypt(bad, count=len(VALUES), pieces=1),
    ):
        with pytest.raises(PayloadError) as caught:
            use()
        assert caught.value.reason == ("truncated" if change in ("cut", "longer", "empty") else "malformed")
    with pytest.raises(PayloadError) as caught:
        public.add([good, bad], (1, 1), count=len(VALUES))
    assert caught.value.place == 1


def test_another_keys_ciphertext_does_not_open():
    mine, other = short_keys(), UnsafePaillierKeys.generate(510, SealingLimits())
    assert mine.public.slots == other.public.slots
    size = mine.public.ciphertext_bytes
    foreign = ciphertexts(other.public, other.public.encrypt(np.ones(3)))[0]
    with pytest.raises(PayloadError, match="another key"):
        mine.decrypt(foreign.to_bytes(size, "big"), count=3, pieces=1)


@pytest.mark.parametrize(("bits", "legacy"), [(3072, False), (2048, True)])
def test_keys_of_real_length_seal_add_and_open(bits, legacy):
    keys = keygen("paillier", bits=bits, legacy=legacy)
    assert isinstance(keys, PaillierKeys)
    assert keys.public.bits == bits
    rows = [np.random.default_rng(place).uniform(-16, 16, 500) for place in range(3)]
    total = keys.public.add([keys.public.encrypt(row) for row in rows], (87382, 87381, 87381), count=500)
    found = keys.decrypt(total, count=500, pieces=2**18)
    expected = (87382 * rows[0] + 87381 * (rows[1] + rows[2])) / 2**18
    assert np.abs(found - expected).max() <= keys.public.precision + 1e-12
