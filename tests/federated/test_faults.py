"""Clients that die, are late, or send what they should not: named, counted, never averaged."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest
import torch

from leakscope.defences.noise import gaussian_noise
from leakscope.errors import InconclusiveError, RoundFailedError
from leakscope.federated import Aggregator, Client, FedAvg, FedBoosting, train_federated
from leakscope.federated.aggregation import fedavg
from leakscope.types import SealedUpdate, SharedUpdate
from small_federation import blobs, clients, experiment, network, same_bytes

TEST = blobs(30, seed=99)


def spoil(number, change, **options):
    """Two rounds in which the reply of one client is what `change` makes of it."""

    def call(client, given, plan, turn):
        reply = client.take_part(given, plan, round=turn)
        return change(reply) if client.number == number else reply

    plan = experiment(rounds=2, min_completed=0.5, **options)
    return train_federated(network(), clients(), TEST, plan, call=call)


def change_tensors(reply, change):
    tensors = {name: value.clone() for name, value in reply.update.tensors.items()}
    change(tensors)
    return replace(reply, update=replace(reply.update, tensors=tensors))


def one_nan(reply):
    return change_tensors(reply, lambda tensors: tensors["0.weight"][0].fill_(float("nan")))


def turned(reply):
    return change_tensors(reply, lambda tensors: tensors.update({"0.weight": tensors["0.weight"].T}))


def renamed(reply):
    return change_tensors(reply, lambda tensors: tensors.update({"extra": tensors.pop("0.bias")}))


def missing(reply):
    return change_tensors(reply, lambda tensors: tensors.pop("0.bias"))


def die(reply):
    raise ConnectionError("the line is dead")


def gradient(reply):
    return replace(reply, update=SharedUpdate("gradient", reply.update.tensors, 10))


FAULTS = {
    "dies": (die, "ConnectionError: the line is dead"),
    "nan": (one_nan, "0.weight holds NaN or Inf"),
    "shape": (turned, r"0.weight should be \[6, 2\]"),
    "name": (renamed, "'extra', which is not a shared parameter"),
    "missing": (missing, "other tensors than the rest: 0.bias"),
    "kind": (gradient, "expected a delta, got a gradient"),
    "nothing": (lambda reply: None, "expected a Reply, got a NoneType"),
    "replayed": (lambda reply: replace(reply, round=0 if reply.round else 7), "to round"),
    "another's": (lambda reply: replace(reply, client=0), "expected the reply of client 1"),
    "no examples": (lambda reply: replace(reply, num_examples=0), "num_examples must be a whole number"),
    "loss": (lambda reply: replace(reply, train_loss=float("inf")), "its training loss is inf"),
    "sealed": (lambda reply: replace(reply, update=SealedUpdate("ckks", b"")), "other tensors than the rest"),
    "buffer": (lambda reply: replace(reply, buffers={"odd": torch.ones(1)}), "'odd', which is not a shared buffer"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_client_is_named_and_left_out(fault):
    change, reason = FAULTS[fault]
    found = spoil(1, change)
    for record in found.rounds:
        assert [failure.client for failure in record.failures] == [1]
        assert re.search(reason, record.failures[0].reason)
        assert list(record.weights) == [0, 2]
        assert sum(record.weights.values()) == pytest.approx(1)
    # As if it were not there: the others' weights and updates alone.
    others = [client for client in clients() if client.number != 1]
    without = train_federated(network(), others, TEST, experiment(rounds=2))
    assert same_bytes(found.model, without.model)


def test_below_the_minimum_the_round_fails_with_reasons():
    with pytest.raises(
        RoundFailedError, match=r"round 0: 2 of 3 clients completed it, at least 3 must .*client 1: .*dead"
    ):
        train_federated(network(), clients(), TEST, experiment(), call=_dying)
    assert issubclass(RoundFailedError, InconclusiveError)


def _dying(client, given, plan, turn):
    if client.number == 1:
        raise ConnectionError("the line is dead")
    return client.take_part(given, plan, round=turn)


def test_the_minimum_is_a_share_of_those_who_take_part():
    plan = experiment(rounds=1, min_completed=2 / 3)
    assert len(train_federated(network(), clients(), TEST, plan, call=_dying).rounds[0].failures) == 1
    assert [plan.count_needed(count) for count in (1, 2, 3, 30)] == [1, 2, 2, 20]


def test_how_long_a_client_says_it_took_decides_nothing():
    """The server has a clock of its own: see test_time_limit."""

    def call(client, given, plan, turn):
        return replace(client.take_part(given, plan, round=turn), seconds=99.0 * client.number)

    plan = experiment(rounds=1)
    assert train_federated(network(), clients(), TEST, plan, call=call, time_limit=30.0).rounds[0].failures == ()


@dataclass
class _Refusing(Client):
    def validate(self, model, experiment, *, round):
        raise OSError("no held-out data today")


def test_a_client_that_cannot_validate_does_not_count():
    members = clients()
    members[0] = _Refusing(0, members[0].train, members[0].held_out)
    plan = experiment(rounds=1, strategy=FedBoosting(), min_completed=0.5)
    record = train_federated(network(), members, TEST, plan).rounds[0]
    assert (record.failures[0].client, list(record.weights)) == (0, [1, 2])
    assert record.failures[0].reason == "OSError: no held-out data today"
    assert record.validation is not None
    assert [len(row) for row in record.validation] == [2, 2]


@dataclass
class _Blind(Client):
    def validate(self, model, experiment, *, round):
        return float("nan")


def test_a_validator_without_any_finite_loss_is_the_one_at_fault():
    members = clients()
    members[2] = _Blind(2, members[2].train, members[2].held_out)
    plan = experiment(rounds=1, strategy=FedBoosting(), min_completed=0.5)
    record = train_federated(network(), members, TEST, plan).rounds[0]
    assert [failure.client for failure in record.failures] == [2]
    assert list(record.weights) == [0, 1]


class _Boxes(Aggregator):
    """Seals by hiding updates under their client and round."""

    name = "boxes"

    def __init__(self) -> None:
        self.held: dict[bytes, SharedUpdate] = {}

    def send(self, update, *, client, round):
        payload = f"{client} {round}".encode()
        self.held[payload] = update
        return SealedUpdate(self.name, payload)

    def combine(self, replies, weights):
        opened = [self.held[reply.update.payload] for reply in replies]  # type: ignore[union-attr]
        return fedavg(opened, weights)


@pytest.mark.parametrize("strategy", [FedAvg(), FedBoosting(), FedBoosting(mixing=0.9)], ids=lambda one: one.name)
def test_sealed_updates_go_through_the_aggregator(strategy):
    plain = train_federated(network(), clients(), TEST, experiment(strategy=strategy))
    sealed = train_federated(network(), clients(), TEST, experiment(strategy=strategy, aggregator=_Boxes()))
    for name, value in plain.model.state_dict().items():
        assert torch.allclose(value, sealed.model.state_dict()[name], atol=1e-6)
    # Payloads of three bytes and no buffers.
    assert sealed.rounds[0].bytes_up < 3 * 3 + 9 * 8 + 1


def test_an_aggregate_that_opens_to_nan_fails_the_round():
    class Broken(_Boxes):
        def combine(self, replies, weights):
            mean = super().combine(replies, weights)
            return replace(mean, tensors={name: value * float("nan") for name, value in mean.tensors.items()})

    with pytest.raises(RoundFailedError, match=r"combined update cannot be applied: .*NaN"):
        train_federated(network(), clients(), TEST, experiment(aggregator=Broken()))


def test_a_client_whose_update_overflows_says_so():
    with pytest.raises(RoundFailedError, match=r"client 0: BadInputError: the client's update holds NaN or Inf"):
        train_federated(network(), clients(), TEST, experiment(defence=gaussian_noise(1e39)))
