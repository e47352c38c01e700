from __future__ import annotations

import copy
import os
import pickle
import stat

import numpy as np
import pytest
import torch
from sealing_keys import SCHEMES, keys_of, short_keys

from leakscope.errors import BadInputError, LeakscopeError, UsageError
from leakscope.sealed import client_secret, combine, load_keys, load_public, open_sealed, save_keys, seal, to_bytes
from leakscope.sealed.ckks import CkksKeys
from leakscope.sealed.keys import SealingLimits

pytest.importorskip("gmpy2")
pytest.importorskip("tenseal")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_keys_survive_a_file_that_only_the_owner_can_read(scheme, tmp_path):
    keys = CkksKeys.generate(SealingLimits()) if scheme == "ckks" else keys_of(scheme)
    path = save_keys(tmp_path / "keys", keys)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    again = load_keys(path)
    assert again.public == keys.public
    total = combine([seal({"w": torch.tensor([1.5, -2.0])}, load_public(keys.public.to_json()))], [1])
    found = open_sealed(total, again)["w"]
    torch.testing.assert_close(found, torch.tensor([1.5, -2.0]), rtol=0, atol=1e-7)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_key_file_that_others_can_read_is_refused(mode, tmp_path):
    path = save_keys(tmp_path / "keys", short_keys())
    path.chmod(mode)
    with pytest.raises(BadInputError, match=f"its mode is {mode:o}"):
        load_keys(path)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"public": {}, "secret": {}}', b"\xff", b"[" * 5000])
def test_other_files_are_no_keys(content, tmp_path):
    (tmp_path / "keys").write_bytes(content)
    (tmp_path / "keys").chmod(0o600)
    with pytest.raises(BadInputError):
        load_keys(tmp_path / "keys")
    with pytest.raises(BadInputError):
        load_public(content.decode("latin-1"))


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(BadInputError, match="no such file"):
        load_keys(tmp_path / "keys")


def test_a_damaged_key_file_does_not_quote_the_secret(tmp_path):
    keys = short_keys()
    path = save_keys(tmp_path / "keys", keys)
    prime = keys.secret_fields()["p"]
    path.write_text(path.read_text().replace(prime, prime[:-1] + "xyz"))
    with pytest.raises(LeakscopeError) as caught:
        load_keys(path)
    assert prime[:20] not in str(caught.value)
    assert caught.value.__cause__ is None


def test_primes_of_another_key_are_refused(tmp_path):
    from leakscope.sealed.paillier import UnsafePaillierKeys

    with pytest.raises(UsageError, match="do not belong"):
        UnsafePaillierKeys(7, 11, short_keys().public)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_secret_half_is_in_nothing_that_leaves(scheme):
    """Byte search over all that a server gets, and over what a log would show."""
    keys = keys_of(scheme)
    secret = client_secret()
    update = seal({"w": torch.ones(5)}, keys.public, client="ann", round=1, secret=secret)
    total = combine([update], [1.0], secrets={"ann": secret}, round=1)
    sent = [
        to_bytes(update),
        to_bytes(total),
        keys.public.to_json().encode(),
        pickle.dumps(update),
        pickle.dumps(total),
    ]
    shown = [repr(thing).encode() for thing in (keys, keys.public, update, total)]
    for needle in _needles(keys):
        assert len(needle) >= 16
        assert all(needle not in one for one in (*sent, *shown))
    assert all(secret not in one and secret.hex().encode() not in one for one in (*sent, *shown))


def _needles(keys):
    """Pieces of the secret in every form it could travel in."""
    for value in keys.secret_fields().values():
        text, middle = value.encode(), len(value) // 2
        # SEAL begins all it writes with the same header, so not from there.
        yield text[middle : middle + 30]
        yield text[-30:]
        if isinstance(keys, CkksKeys):
            raw = keys._secret
            yield raw[len(raw) // 2 : len(raw) // 2 + 24]
        else:
            for order in ("big", "little"):
                yield int(value, 16).to_bytes(32, order)[:24]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_keys_are_neither_pickled_nor_copied(scheme):
    for use in (pickle.dumps, copy.copy, copy.deepcopy, lambda keys: pickle.dumps([keys], protocol=2)):
        with pytest.raises(UsageError, match="neither pickled nor copied"):
            use(keys_of(scheme))


def test_openings_are_counted_over_restarts(tmp_path):
    keys = CkksKeys.generate(SealingLimits(), openings=3)
    payload = keys.public.encrypt(np.ones(5))
    keys.decrypt(payload, count=5, pieces=1)
    path = save_keys(tmp_path / "keys", keys)
    assert stat.S_IMODE(os.stat(f"{path}.openings").st_mode) == 0o600
    keys.decrypt(payload, count=5, pieces=1)
    again = load_keys(path)
    assert isinstance(again, CkksKeys)
    assert again.opened.spent == 2
    again.decrypt(payload, count=5, pieces=1)
    for used_up in (keys, load_keys(path)):
        with pytest.raises(UsageError, match="may open 3 ciphertexts"):
            used_up.decrypt(payload, count=5, pieces=1)
