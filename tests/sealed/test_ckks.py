from __future__ import annotations

import os

import numpy as np
import pytest
from sealing_keys import ckks_keys

from leakscope.errors import StorageError, UsageError
from leakscope.sealed import ckks, ckks_engine
from leakscope.sealed.ckks import CkksKeys
from leakscope.sealed.keys import PayloadError, SealingLimits
from leakscope.sealed.new_keys import keygen
from leakscope.sealed.opening_count import OpeningCount

pytest.importorskip("tenseal")
COUNT = 9_000


def rows(count=3, size=COUNT):
    return [np.random.default_rng(place).uniform(-16, 16, size) for place in range(count)]


def test_weighted_sums_open_within_the_noise():
    keys, values, numbers = ckks_keys(), rows(), (5, 0, 2**18 - 5)
    total = keys.public.add([keys.public.encrypt(row) for row in values], numbers, count=COUNT)
    found = keys.decrypt(total, count=COUNT, pieces=2**18)
    error = found - sum(number * row for number, row in zip(numbers, values, strict=True)) / 2**18
    assert np.abs(error).max() <= keys.public.precision < 2e-9
    # The noise is really there, and as wide as it must be.
    assert np.std(error) == pytest.approx(keys.public.deviation, rel=0.05)


def test_the_largest_sums_do_not_wrap():
    keys = CkksKeys.generate(SealingLimits(bound=2.0**12, pieces=2**24))
    values = [np.full(10, 2.0**12), np.full(10, -(2.0**12))]
    payloads = [keys.public.encrypt(row) for row in values]
    for numbers, expected in (((2**24, 0), 2.0**12), ((0, 2**24), -(2.0**12)), ((2**23, 2**23), 0.0)):
        found = keys.decrypt(keys.public.add(payloads, numbers, count=10), count=10, pieces=2**24)
        assert np.abs(found - expected).max() <= keys.public.precision


def test_bound_and_pieces_beyond_the_modulus_are_refused():
    with pytest.raises(UsageError, match=r"at most 2\^36"):
        CkksKeys.generate(SealingLimits(bound=2.0**20, pieces=2**18))
    with pytest.raises(UsageError, match="options of 'paillier'"):
        keygen("ckks", bits=3072)
    with pytest.raises(UsageError, match="option of 'ckks'"):
        keygen("paillier", openings=3)


def test_parameters_are_128_bit_secure():
    """The table of the homomorphic encryption standard: at most 218 bits at degree 8192."""
    engine = ckks_engine.Engine()
    assert engine.context.parameters_set()
    assert sum(ckks_engine.PRIME_BITS) <= 218
    parameters = engine.seal.EncryptionParameters(engine.seal.SCHEME_TYPE.CKKS)
    parameters.set_poly_modulus_degree(4096)
    parameters.set_coeff_modulus(engine.seal.CoeffModulus.Create(4096 * 2, [60, 60, 60]))
    weak = engine.seal.SEALContext(parameters, True, engine.seal.SEC_LEVEL_TYPE.TC128)
    assert not weak.parameters_set()


def test_two_encryptions_differ():
    public = ckks_keys().public
    assert public.encrypt(np.zeros(3)) != public.encrypt(np.zeros(3))


def _damage(payload, change):
    block = next(ckks_engine.split_blocks(payload))
    middle = len(block) // 2
    return {
        "empty": b"",
        "cut": payload[:-1],
        "one block": payload[: 4 + len(block)],
        "length only": payload[:4],
        "huge length": b"\xff\xff\xff\xff" + payload[4:],
        "zero length": bytes(4) + payload,
        "no seal header": payload[:4] + bytes(16) + payload[20:],
        "noise": payload[:4] + block[:64] + os.urandom(len(block) - 64) + payload[4 + len(block) :],
        "flipped": payload[: 4 + middle] + bytes([payload[4 + middle] ^ 1]) + payload[5 + middle :],
    }[change]


@pytest.mark.parametrize("change", ["empty", "cut", "one block", "length only", "huge length", "zero length"])
def test_truncated_payloads_never_reach_seal(change, monkeypatch):
    keys = ckks_keys()
    good = keys.public.encrypt(rows(1)[0])
    monkeypatch.setattr(ckks, "_run", lambda *args, **kwargs: pytest.fail("SEAL was started"))
    for use in (
        lambda bad: keys.public.add([good, bad], (1, 1), count=COUNT),
        lambda bad: keys.decrypt(bad, count=COUNT, pieces=1),
    ):
        with pytest.raises(PayloadError) as caught:
            use(_damage(good, change))
        assert caught.value.reason == "truncated"


@pytest.mark.parametrize("change", ["no seal header", "noise"])
def test_garbage_is_refused_in_the_child_and_named(change):
    keys = ckks_keys()
    good = keys.public.encrypt(rows(1)[0])
    with pytest.raises(PayloadError) as caught:
        keys.public.add([good, _damage(good, change)], (1, 1), count=COUNT)
    assert (caught.value.reason, caught.value.place) == ("malformed", 1)


def test_a_ciphertext_of_other_parameters_is_refused():
    """One without anything hidden: SEAL itself would add it up."""
    engine, keys = ckks_engine.Engine(), ckks_keys()
    key = engine.seal.PublicKey()
    key.load(engine.context, engine.scratch.write(keys.public.public_key))
    plain, hidden = engine.seal.Plaintext(), engine.seal.Ciphertext()
    engine.encoder.encode([1.0 + 0j] * 4096, 2.0**40, plain)
    engine.seal.Encryptor(engine.context, key).encrypt(plain, hidden)
    with pytest.raises(PayloadError, match="other parameters"):
        keys.public.add([engine.save(hidden)], (1,), count=10)


def test_another_keys_ciphertext_opens_to_nothing():
    mine, other = ckks_keys(), CkksKeys.generate(SealingLimits())
    with pytest.raises(PayloadError, match="another key") as caught:
        mine.decrypt(other.public.encrypt(np.ones(5)), count=5, pieces=1)
    assert caught.value.reason == "out of range"


def test_openings_are_counted_and_the_next_one_is_refused():
    keys = CkksKeys.generate(SealingLimits(), openings=3)
    payload = keys.public.encrypt(rows(1)[0])
    keys.decrypt(payload, count=COUNT, pieces=1)
    assert keys.opened.spent == 2
    with pytest.raises(UsageError, match="may open 3 ciphertexts in all, 2 are opened and 2 more"):
        keys.decrypt(payload, count=COUNT, pieces=1)
    assert keys.opened.spent == 2
    keys.decrypt(keys.public.encrypt(np.ones(5)), count=5, pieces=1)
    with pytest.raises(UsageError, match="3 are opened and 1 more"):
        keys.decrypt(keys.public.encrypt(np.ones(5)), count=5, pieces=1)


def test_more_openings_mean_more_noise():
    few, many = (CkksKeys.generate(SealingLimits(), openings=count).public for count in (1, 10_000))
    assert many.deviation == pytest.approx(100 * few.deviation)


def test_a_count_in_a_file_counts_for_all_and_refuses_when_it_cannot(tmp_path):
    one, other = OpeningCount(tmp_path / "l"), OpeningCount(tmp_path / "l")
    one.spend(2, limit=5)
    other.spend(2, limit=5)
    assert (one.spent, other.spent) == (4, 4)
    with pytest.raises(UsageError, match="4 are opened"):
        one.spend(2, limit=5)
    assert one.spent == 4
    with pytest.raises(StorageError, match="cannot be counted"):
        OpeningCount(tmp_path / "no folder" / "l").spend(1, limit=5)
