from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sealing_keys import SCHEMES, ckks_keys, keys_of, short_keys

import leakscope as ls
from leakscope.errors import BadInputError, CiphertextError, UsageError
from leakscope.sealed import client_secret, combine, error_bound, from_bytes, open_sealed, open_update, seal, to_bytes
from leakscope.sealed.paillier import UnsafePaillierKeys
from leakscope.types import SealedUpdate, SharedUpdate

pytest.importorskip("gmpy2")
pytest.importorskip("tenseal")
EXTREMES = st.sampled_from([0.0, -0.0, 16.0, -16.0, 1e-9, -1e-9, 15.999999, -0.5])
VALUES = st.one_of(EXTREMES, st.floats(-16, 16))


def tensors(rows):
    half = len(rows) // 2
    return {"a": torch.tensor(rows[:half], dtype=torch.float64), "b": torch.tensor([rows[half:]], dtype=torch.float64)}


def plain_sum(updates, weights):
    stacked = {name: torch.stack([one[name] for one in updates], dim=-1) for name in updates[0]}
    return {name: value @ torch.tensor(weights, dtype=torch.float64) for name, value in stacked.items()}


@st.composite
def federations(draw, most):
    clients = draw(st.integers(1, most))
    rows = draw(st.lists(st.lists(VALUES, min_size=9, max_size=9), min_size=clients, max_size=clients))
    weights = draw(st.lists(st.floats(0, 1000), min_size=clients, max_size=clients).filter(any))
    return [tensors(row) for row in rows], weights


def check_agrees(keys, updates, weights):
    public = keys.public
    total = combine([seal(one, public) for one in updates], weights)
    found, expected = open_sealed(total, keys), plain_sum(updates, weights)
    largest = [max(float(value.abs().max()) for value in one.values()) for one in updates]
    bound = error_bound(public, weights, largest)
    for name, value in expected.items():
        assert found[name].shape == value.shape
        assert float((found[name] - value).abs().max()) <= bound
    return bound


@settings(max_examples=40, deadline=None)
@given(federations(16))
def test_sealed_and_plain_agree_within_the_stated_bound(federation):
    check_agrees(short_keys(), *federation)


@settings(max_examples=2, deadline=None)
@given(federations(16))
def test_sealed_and_plain_agree_within_the_stated_bound_with_ckks(federation):
    check_agrees(ckks_keys(), *federation)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_bound_is_tight_enough_to_mean_something(scheme):
    updates = [tensors([float(torch.rand(1)) for _ in range(9)]) for _ in range(3)]
    # A mean of three: the weights are right to one of 2^18 pieces.
    assert check_agrees(keys_of(scheme), updates, [1 / 3] * 3) < 1.3e-5
    # Two equal clients: nothing is lost in the weights.
    assert check_agrees(keys_of(scheme), updates[:2], [0.5, 0.5]) < 6e-8


def test_100_pieces_differ_from_float_averaging_by_less_than_one_piece_each():
    """The release rounds weights to hundredths; with largest remainders the result does not shrink besides."""
    keys = short_keys(pieces=2048)
    updates = [tensors([float(value) for value in torch.randn(9)]) for _ in range(7)]
    found = open_sealed(combine([seal(one, keys.public) for one in updates], [1 / 7] * 7), keys)
    for name, value in plain_sum(updates, [1 / 7] * 7).items():
        sizes = sum(one[name].abs() for one in updates)
        assert bool(((found[name] - value).abs() <= sizes / 2048 + 1e-6).all())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_overflow_raises_on_both_sides(scheme, sign):
    public = keys_of(scheme).public
    seal({"w": torch.tensor([sign * 16.0])}, public)
    with pytest.raises(BadInputError, match="'w' holds a value beyond ±16"):
        seal({"w": torch.tensor([sign * math.nextafter(16.0, 17.0)], dtype=torch.float64)}, public)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_no_numbers_are_refused(bad):
    with pytest.raises(BadInputError, match="'w' holds NaN or Inf"):
        seal({"w": torch.tensor([0.0, bad])}, short_keys().public)


def test_whole_numbers_and_nothing_are_refused():
    public = short_keys().public
    with pytest.raises(BadInputError, match="dtype int64"):
        seal({"w": torch.tensor([1])}, public)
    for nothing in ({}, {"w": torch.zeros(0)}):
        with pytest.raises(BadInputError, match="nothing to seal"):
            seal(nothing, public)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes_shapes_names_and_the_callers_tensors_stay(dtype):
    keys = short_keys()
    given_ = {"scalar": torch.tensor(1.5, dtype=dtype), "matrix": torch.full((2, 3), -0.25, dtype=dtype)}
    before = copy.deepcopy(given_)
    found = open_sealed(combine([seal(given_, keys.public)] * 2, [1, 1]), keys)
    assert list(found) == ["scalar", "matrix"]
    for name, value in given_.items():
        assert (found[name].dtype, found[name].shape) == (dtype, value.shape)
        assert torch.equal(found[name], 2 * value)
        assert torch.equal(value, before[name])


def test_a_shared_update_keeps_kind_examples_and_buffers():
    keys = short_keys()
    buffers = {"mean": torch.tensor([2.0]), "count": torch.tensor(7)}
    update = SharedUpdate("delta", {"w": torch.tensor([1.0])}, num_examples=3, buffers=buffers)
    total = combine([seal(update, keys.public), seal(update, keys.public)], [0.5, 0.5])
    assert (total.kind, total.num_examples) == ("delta", 6)
    parameters, averaged = open_update(total, keys)
    assert (parameters, averaged) == ({"w": torch.tensor([1.0])}, {"mean": torch.tensor([2.0])})


def test_the_public_names_of_the_design():
    keys = ls.federated.keygen("paillier", bits=2048, legacy=True)
    update = {"w": torch.tensor([1.0, -2.0])}
    total = ls.federated.combine(
        [ls.federated.seal(update, keys.public), ls.federated.seal(update, keys.public)], [1, 2]
    )
    torch.testing.assert_close(ls.federated.open_sealed(total, keys)["w"], torch.tensor([3.0, -6.0]), rtol=0, atol=1e-4)
    assert keys.public.limits.pieces == 2**18
    assert ls.federated.keygen("ckks").public.limits.pieces == 2**30
    with pytest.raises(UsageError, match=r"unknown scheme 'pailler'\. Did you mean 'paillier'"):
        ls.federated.keygen("pailler")


def test_attacks_do_not_accept_it():
    sealed = seal({"0.weight": torch.zeros(2, 4)}, short_keys().public)
    with pytest.raises(UsageError, match="sealed"):
        ls.observe(torch.nn.Sequential(torch.nn.Linear(4, 2)), sealed, input_shape=(4,))


def test_too_many_clients_and_sums_of_sums_are_refused():
    keys = UnsafePaillierKeys.generate(256, type(short_keys().public.limits)(clients=2))
    sealed = seal({"w": torch.ones(1)}, keys.public)
    with pytest.raises(UsageError, match="at most 2 updates, got 3"):
        combine([sealed] * 3, [1, 1, 1])
    with pytest.raises(CiphertextError, match="is a sum already"):
        combine([combine([sealed], [1])], [1])
    with pytest.raises(UsageError, match="one weight per update"):
        combine([sealed], [1, 1])


# Who sent what, and when.

CLIENTS = {name: client_secret() for name in ("ann", "bob")}


def signed(name="ann", round=4, keys=None, secret=None, value=1.0):
    public = (keys or short_keys()).public
    return seal({"w": torch.tensor([value])}, public, client=name, round=round, secret=secret or CLIENTS[name])


def test_signed_updates_of_this_round_are_added_up():
    keys = short_keys()
    total = combine([signed("ann"), signed("bob", value=3.0)], [0.5, 0.5], secrets=CLIENTS, round=4)
    assert open_sealed(total, keys)["w"].tolist() == [2.0]


def flipped(update, field):
    if field == "payload":
        return _with(update, payload=update.payload[:-1] + bytes([update.payload[-1] ^ 1]))
    return _with(update, **field)


def _with(update, **changes):
    return SealedUpdate(**{**{name: getattr(update, name) for name in update.__dataclass_fields__}, **changes})


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: flipped(signed("bob"), "payload"), "not authentic"),
        (lambda: flipped(signed("bob"), {"num_examples": 9}), "not authentic"),
        (lambda: flipped(signed("bob", round=3), {"round": 4}), "not authentic"),
        (lambda: flipped(signed("ann"), {"client": "bob"}), "not authentic"),
        (lambda: flipped(signed("bob"), {"tag": b""}), "not authentic"),
        (lambda: signed("bob", secret=client_secret()), "not authentic"),
        (lambda: signed("eve", secret=client_secret()), "not authentic"),
        (lambda: signed("bob", round=3), "wrong round"),
        (lambda: signed("ann"), "replayed"),
        (lambda: signed("bob", keys=UnsafePaillierKeys.generate(512, short_keys().public.limits)), "foreign key"),
    ],
)
def test_whatever_is_wrong_is_named_with_its_client(make, reason):
    bad = make()
    with pytest.raises(CiphertextError) as caught:
        combine([signed("ann"), bad], [1, 1], secrets=CLIENTS, round=4)
    assert (caught.value.client, caught.value.reason) == (bad.client, reason)
    assert repr(bad.client) in str(caught.value)


def test_a_tag_names_its_sender_even_where_two_share_a_secret():
    shared = dict.fromkeys(("ann", "bob"), CLIENTS["ann"])
    renamed = flipped(signed("ann"), {"client": "bob"})
    with pytest.raises(CiphertextError, match="not authentic"):
        combine([renamed], [1], secrets=shared, round=4)


def test_signed_updates_are_not_added_up_unchecked():
    with pytest.raises(UsageError, match="is signed; give combine the clients' secrets"):
        combine([signed()], [1])
    with pytest.raises(UsageError, match="give round="):
        combine([signed()], [1], secrets=CLIENTS)


def test_a_truncated_ciphertext_of_a_careless_client_is_named():
    cut = _with(signed("bob"), payload=signed("bob").payload[:-1], tag=b"")
    with pytest.raises(CiphertextError, match="client 'bob'") as caught:
        combine([_with(signed("ann"), tag=b""), cut], [1, 1])
    assert (caught.value.client, caught.value.reason) == ("bob", "truncated")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_update_survives_the_way_as_bytes(scheme):
    keys = keys_of(scheme)
    update = signed("ann", keys=keys)
    message = to_bytes(update)
    again = from_bytes(message, keys.public, secrets=CLIENTS, round=4)
    assert again == update
    assert open_sealed(combine([again], [1], secrets=CLIENTS, round=4), keys)["w"].item() == pytest.approx(
        1.0, abs=1e-8
    )


def test_every_truncation_and_every_flipped_byte_of_a_message_is_refused():
    public = short_keys().public
    message = to_bytes(signed("ann"))
    for end in range(0, len(message), 7):
        with pytest.raises(CiphertextError):
            from_bytes(message[:end], public, secrets=CLIENTS, round=4)
    for place in range(len(message)):
        changed = message[:place] + bytes([message[place] ^ 1]) + message[place + 1 :]
        with pytest.raises(CiphertextError):
            from_bytes(changed, public, secrets=CLIENTS, round=4)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_from_anyone_give_one_typed_error(rest):
    for message in (rest, b"LSSU1" + rest, b"LSSU1" + bytes(8) + len(rest).to_bytes(4, "little") + rest):
        with pytest.raises(CiphertextError):
            from_bytes(message, short_keys().public)


@pytest.mark.parametrize(
    "header",
    [
        {"contents": [["w", [-1], "float32", False]]},
        {"contents": [["w", [2**40], "float32", False]]},
        {"contents": [["w", [1], "object", False]]},
        {"contents": [["w", [1], "float32", False]] * 2},
        {"contents": "w"},
        {"round": "4"},
        {"pieces": True},
        {"weight": 1e999},
        {"kind": "pickle"},
    ],
)
def test_headers_that_cannot_be_are_refused(header):
    import json

    from leakscope.sealed.authenticate import header_of

    update = _with(signed("ann"), tag=b"")
    fields = {**json.loads(header_of(update)), **header}
    text = json.dumps(fields).encode()
    message = (
        b"LSSU1" + b"".join(len(part).to_bytes(4, "little") + part for part in (b"ann", b"", text)) + update.payload
    )
    with pytest.raises(CiphertextError, match="malformed") as caught:
        from_bytes(message, short_keys().public)
    assert caught.value.client == "ann"


def test_pickling_a_sealed_update_takes_its_public_key_along_and_nothing_else():
    update = signed("ann")
    again = pickle.loads(pickle.dumps(update))
    assert again == update
    assert again.public == update.public
