"""Federated rounds over sealed updates: the same training, and clients whose ciphertexts are wrong are named."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from sealing_keys import ckks_keys, short_keys

from leakscope.errors import CiphertextError, RoundFailedError, UsageError
from leakscope.federated import FedBoosting, Reply, SealedAggregator, train_federated
from leakscope.sealed import client_secret, seal
from leakscope.sealed.paillier import UnsafePaillierKeys
from leakscope.types import SharedUpdate
from small_federation import blobs, clients, experiment, network

pytest.importorskip("gmpy2")
TEST = blobs(30, seed=99)


def train(aggregator=None, call=None, **options):
    given = {} if aggregator is None else {"aggregator": aggregator}
    return train_federated(network(), clients(), TEST, experiment(rounds=2, **given, **options), call=call)


def difference(one, other):
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


@pytest.mark.parametrize("strategy", [None, FedBoosting()], ids=["fedavg", "fedboosting"])
def test_sealed_and_plain_training_agree(strategy):
    options = {} if strategy is None else {"strategy": strategy}
    sealed = train(SealedAggregator.of(short_keys(), range(3)), **options)
    plain = train(**options)
    # Two rounds, each right to one of 2^18 pieces a client.
    assert 0 < difference(sealed.model, plain.model) < 1e-4
    assert [record.failures for record in sealed.rounds] == [(), ()]
    assert sealed.rounds[-1].accuracy == plain.rounds[-1].accuracy


def test_ckks_trains_alike():
    pytest.importorskip("tenseal")
    sealed = train_federated(
        network(), clients(2), TEST, experiment(rounds=1, aggregator=SealedAggregator.of(ckks_keys(), range(2)))
    )
    plain = train_federated(network(), clients(2), TEST, experiment(rounds=1))
    assert difference(sealed.model, plain.model) < 1e-4


def spoil(change, *, number=1, min_completed=0.5):
    """Two rounds in which one client's reply is what `change` makes of it; earlier replies of all are given too."""
    aggregator = SealedAggregator.of(short_keys(), range(3))
    sent: dict[int, list[Reply]] = {}

    def call(client, given, plan, turn):
        reply = client.take_part(given, plan, round=turn)
        sent.setdefault(client.number, []).append(reply)
        return change(reply, sent, aggregator) if client.number == number else reply

    return train(aggregator, call, min_completed=min_completed)


def _reseal(reply, aggregator, **options):
    plain = SharedUpdate("delta", {name: torch.zeros(*one.shape) for name, one in _named(reply)}, 1)
    given = {"client": "1", "round": reply.round, "secret": aggregator.secrets[1], **options}
    return replace(reply, update=seal(plain, given.pop("public", aggregator.public), **given))


def _named(reply):
    return [(one.name, one) for one in reply.update.contents]


def replayed(reply, sent, aggregator):
    return replace(reply, update=sent[1][0].update)


def of_another(reply, sent, aggregator):
    return replace(reply, update=sent[0][-1].update)


def truncated(reply, sent, aggregator):
    cut = replace(reply.update, payload=reply.update.payload[:-9], tag=b"")
    return replace(reply, update=_signed(cut, aggregator))


def _signed(update, aggregator):
    from leakscope.sealed.authenticate import sign

    return sign(update, aggregator.secrets[1])


def changed(reply, sent, aggregator):
    return replace(reply, update=replace(reply.update, payload=bytes(len(reply.update.payload))))


def of_another_key(reply, sent, aggregator):
    return _reseal(reply, aggregator, public=UnsafePaillierKeys.generate(512, aggregator.public.limits).public)


def forged(reply, sent, aggregator):
    return _reseal(reply, aggregator, secret=client_secret())


def in_the_clear(reply, sent, aggregator):
    return replace(
        reply, update=SharedUpdate("delta", {name: torch.zeros(*one.shape) for name, one in _named(reply)}, 1)
    )


def other_tensors(reply, sent, aggregator):
    tensors = {"extra": torch.zeros(2)}
    return replace(
        reply,
        update=seal(
            SharedUpdate("delta", tensors, 1),
            aggregator.public,
            client="1",
            round=reply.round,
            secret=aggregator.secrets[1],
        ),
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (replayed, "is of round 0, expected one of round 1"),
        (of_another, "signed for '0'"),
        (truncated, "ciphertexts of 128 bytes"),
        (changed, "not authentic"),
        (of_another_key, "was sealed with key"),
        (forged, "not authentic"),
        (in_the_clear, "in the clear"),
        (other_tensors, "other tensors than the rest"),
    ],
)
def test_a_client_with_a_wrong_ciphertext_is_named_and_left_out(change, said):
    done = spoil(change)
    failed = {failure.client: failure.reason for record in done.rounds for failure in record.failures}
    assert list(failed) == [1]
    assert said in failed[1]
    assert 1 not in done.rounds[-1].weights
    assert set(done.rounds[-1].weights) == {0, 2}


def test_below_the_least_number_of_clients_the_round_fails():
    with pytest.raises(RoundFailedError, match="not authentic"):
        spoil(changed, min_completed=1.0)


def test_who_has_no_keys_opens_nothing_and_who_has_no_secret_signs_nothing():
    full = SealedAggregator.of(short_keys(), [0])
    update = SharedUpdate("delta", {"w": torch.ones(2)}, 1)
    reply = Reply(0, 0, full.send(update, client=0, round=0), 1, 1.0)
    server = SealedAggregator(full.public, full.secrets)
    server.check(reply, client=0, round=0)
    with pytest.raises(UsageError, match="has no keys to open"):
        server.combine([reply], [1.0])
    with pytest.raises(UsageError, match="client 7 has no secret"):
        full.send(update, client=7, round=0)
    with pytest.raises(CiphertextError, match="in the clear"):
        full.combine([replace(reply, update=update)], [1.0])
    assert full.combine([reply], [1.0]).tensors["w"].tolist() == [1.0, 1.0]
    assert "secret" not in repr(full)
    assert full.secrets[0].hex() not in repr(full)
