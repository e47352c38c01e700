"""The server's clock: a client that hangs is ended, named and counted, and the others come to the same bytes."""

from __future__ import annotations

import multiprocessing
import time

import pytest
import torch

from hanging_clients import Dying, Failing, Hanging
from leakscope.defences.key_lock import key_lock
from leakscope.defences.top_k import top_k
from leakscope.errors import RoundFailedError, UsageError
from leakscope.federated import FedBoosting, train_federated
from small_federation import blobs, clients, experiment, network, same_bytes

TEST = blobs(30, seed=99)
# Far more than a client of this size takes, far less than one that hangs.
LIMIT = 5.0


def with_one(kind, number=1, **options):
    members = clients()
    members[number] = kind(number, members[number].train, members[number].held_out, **options)
    return members


def without(number):
    return [client for client in clients() if client.number != number]


def test_a_hanging_client_is_ended_and_the_others_come_to_the_same_bytes():
    plan = experiment(rounds=1, min_completed=0.5)
    began = time.monotonic()
    found = train_federated(network(), with_one(Hanging), TEST, plan, time_limit=LIMIT)
    assert time.monotonic() - began < 120
    assert [(one.client, one.reason) for one in found.rounds[0].failures] == [
        (1, "TimeoutError: no reply within 5 s; its process was ended")
    ]
    assert list(found.rounds[0].weights) == [0, 2]
    assert same_bytes(found.model, train_federated(network(), without(1), TEST, plan).model)
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_below_the_minimum_a_hanging_client_fails_the_round():
    with pytest.raises(RoundFailedError, match=r"2 of 3 clients completed it.*client 1: TimeoutError: no reply"):
        train_federated(network(), with_one(Hanging), TEST, experiment(rounds=1), time_limit=LIMIT)


@pytest.mark.slow
def test_a_client_that_hangs_while_it_validates_is_ended():
    plan = experiment(rounds=1, min_completed=0.5, strategy=FedBoosting())
    members = with_one(Hanging, hangs_at="validate")
    record = train_federated(network(), members, TEST, plan, time_limit=LIMIT).rounds[0]
    assert [one.client for one in record.failures] == [1]
    assert "TimeoutError" in record.failures[0].reason
    assert list(record.weights) == [0, 2]


def test_a_client_that_dies_or_raises_costs_itself_alone():
    plan = experiment(rounds=1, min_completed=1 / 3)
    members = with_one(Dying)
    members[2] = Failing(2, members[2].train, members[2].held_out)
    record = train_federated(network(), members, TEST, plan, time_limit=60.0).rounds[0]
    assert {one.client: one.reason for one in record.failures} == {
        1: "its process died (exit code 7) before it replied",
        2: "ConnectionError: the line is dead",
    }


@pytest.mark.parametrize(
    "options",
    [{"defence": key_lock(key_length=4)}, {"defence": top_k(0.2, feedback=True), "strategy": FedBoosting()}],
    ids=["private", "memory and validation"],
)
def test_a_limit_changes_no_bit(options):
    plan = experiment(rounds=2, **options)
    limited = train_federated(network(norm=True, dropout=0.2), clients(), TEST, plan, time_limit=60.0)
    free = train_federated(network(norm=True, dropout=0.2), clients(), TEST, plan)
    assert same_bytes(limited.model, free.model)
    assert limited.rounds == free.rounds
    for mine, theirs in zip(limited.clients, free.clients, strict=True):
        kept = theirs.memory.state()
        assert kept
        assert all(torch.equal(value, kept[name]) for name, value in mine.memory.state().items())


def test_what_cannot_be_handed_over_is_wrong_usage_not_a_clients_failure():
    plan = experiment(rounds=1, loss=lambda scores, targets: torch.nn.functional.cross_entropy(scores, targets))
    with pytest.raises(UsageError, match=r"cannot be handed over.*top level of a module, or give no limit"):
        train_federated(network(), clients(), TEST, plan, time_limit=60.0)


def test_a_call_of_the_callers_own_is_waited_for_no_longer_than_the_limit():
    """By the server's clock: the client's own report of its time counts for nothing."""

    def call(client, given, plan, turn):
        reply = client.take_part(given, plan, round=turn)
        if client.number == 1:
            time.sleep(60)
        return reply

    plan = experiment(rounds=1, min_completed=0.5, defence=top_k(0.2, feedback=True))
    found = train_federated(network(), clients(), TEST, plan, call=call, time_limit=2.0)
    assert [one.reason for one in found.rounds[0].failures] == [
        "TimeoutError: no reply within 2 s; it is not waited for"
    ]
    assert found.clients[0].memory.held_back
    # It takes no part: what it held back in a round that did not count is not learnt.
    assert not found.clients[1].memory.held_back
    assert same_bytes(found.model, train_federated(network(), without(1), TEST, plan).model)


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf"), 1e30])
def test_a_limit_that_nobody_can_keep_is_refused(limit):
    with pytest.raises(UsageError, match="time_limit must be a number of seconds above 0"):
        train_federated(network(), clients(), TEST, experiment(rounds=1), time_limit=limit)
