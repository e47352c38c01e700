"""A training that is stopped and continued ends in the same bytes, and a folder serves one training alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from leakscope.defences.key_lock import key_lock
from leakscope.defences.top_k import top_k
from leakscope.errors import BadInputError, RoundFailedError, UsageError
from leakscope.federated import FedBoosting, Poison, ServerOptimiser, train_federated
from leakscope.files import unpack_tensors
from leakscope.types import LocalTraining
from small_federation import blobs, clients, experiment, network, same_bytes

TEST = blobs(30, seed=99)
OPTIONS = {
    "plain": {},
    "adam and statistics": {"server": ServerOptimiser("adam", lr=0.05)},
    "momentum": {"server": ServerOptimiser(lr=0.7, momentum=0.5)},
    "memory": {"defence": top_k(0.2, feedback=True)},
    "private": {"defence": key_lock(key_length=4)},
    "private gradients": {
        "defence": key_lock(key_length=4),
        "local": None,
        "server": ServerOptimiser(lr=0.1, momentum=0.9),
    },
    "boosting": {"strategy": FedBoosting(), "fraction": 0.7},
}


class Stopped(BaseException):
    """As a kill: nothing in the training may catch it."""


def stop_after(count):
    def watch(record):
        if record.round == count:
            raise Stopped

    return watch


def start():
    return network(norm=True)


@pytest.mark.parametrize("name", OPTIONS)
def test_stopped_and_continued_gives_the_same_bytes(name, tmp_path):
    plan = experiment(rounds=4, **OPTIONS[name])
    straight = train_federated(start(), clients(), TEST, plan, directory=tmp_path / "straight")
    for stop in (0, 2):
        with pytest.raises(Stopped):
            train_federated(start(), clients(), TEST, plan, directory=tmp_path / "resumed", watch=stop_after(stop))
    resumed = train_federated(start(), clients(), TEST, plan, directory=tmp_path / "resumed")
    assert same_bytes(straight.model, resumed.model)
    assert straight.rounds == resumed.rounds
    written = [path.relative_to(tmp_path / "straight") for path in (tmp_path / "straight").rglob("0003.safetensors")]
    assert Path("rounds/0003.safetensors") in written
    for last in written:
        assert (tmp_path / "straight" / last).read_bytes() == (tmp_path / "resumed" / last).read_bytes()
    for mine, theirs in zip(straight.clients, resumed.clients, strict=True):
        kept = theirs.memory.state()
        assert all(torch.equal(value, kept[name]) for name, value in mine.memory.state().items())


def test_finished_rounds_are_not_run_again(tmp_path):
    plan, calls = experiment(rounds=3), []

    def call(client, given, chosen, turn):
        calls.append((turn, client.number))
        return client.take_part(given, chosen, round=turn)

    train_federated(network(), clients(), TEST, replace(plan, rounds=2), directory=tmp_path, call=call)
    seen = []
    train_federated(network(), clients(), TEST, plan, directory=tmp_path, call=call, watch=seen.append)
    assert sorted(calls) == [(turn, number) for turn in range(3) for number in range(3)]
    assert [record.round for record in seen] == [2]
    with pytest.raises(UsageError, match="3 rounds of this training are finished already, 1 are asked for"):
        train_federated(network(), clients(), TEST, replace(plan, rounds=1), directory=tmp_path)


def test_only_the_state_of_the_last_round_is_kept(tmp_path):
    train_federated(network(), clients(), TEST, experiment(), directory=tmp_path)
    names = sorted(path.name for path in (tmp_path / "rounds").iterdir())
    assert names == ["0000.json", "0001.json", "0002.json", "0002.safetensors"]


@pytest.mark.parametrize("name", ["private", "private gradients"])
def test_the_servers_checkpoint_holds_public_state_alone(name, tmp_path):
    """What a client keeps is in a file of its own, which no server would have."""
    training = train_federated(start(), clients(), TEST, experiment(**OPTIONS[name]), directory=tmp_path)
    state, _ = unpack_tensors((tmp_path / "rounds" / "0002.safetensors").read_bytes(), name="state")
    assert not [full for full in state if any(secret in full for secret in training.network.private)]
    assert {full.partition("/")[0] for full in state} == {"model", "server"}
    kept = sorted(path.relative_to(tmp_path / "clients") for path in (tmp_path / "clients").rglob("*.safetensors"))
    assert kept == [Path(str(client.number)) / "0002.safetensors" for client in training.clients]
    for client, path in zip(training.clients, kept, strict=True):
        own, _ = unpack_tensors((tmp_path / "clients" / path).read_bytes(), name="own")
        assert own.keys() == client.memory.state().keys()


def test_a_clients_damaged_file_is_named(tmp_path):
    plan = experiment(rounds=2, defence=key_lock(key_length=4))
    train_federated(start(), clients(), TEST, plan, directory=tmp_path)
    path = tmp_path / "clients" / "1" / "0001.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(BadInputError, match=r"1/0001\.safetensors is not what round 1 wrote"):
        train_federated(start(), clients(), TEST, replace(plan, rounds=3), directory=tmp_path)


def test_a_torn_round_is_played_again(tmp_path):
    plan = experiment()
    straight = train_federated(network(), clients(), TEST, plan, directory=tmp_path / "straight")
    folder = tmp_path / "torn"
    train_federated(network(), clients(), TEST, replace(plan, rounds=2), directory=folder)
    # Killed between the state of round 2 and its record.
    (folder / "rounds" / "0002.safetensors").write_bytes(b"half of it")
    resumed = train_federated(network(), clients(), TEST, plan, directory=folder)
    assert same_bytes(straight.model, resumed.model)


def test_a_failed_round_keeps_the_rounds_before_it(tmp_path):
    def dying(client, given, plan, turn):
        if turn == 2 and client.number == 0:
            raise ConnectionError("gone")
        return client.take_part(given, plan, round=turn)

    with pytest.raises(RoundFailedError, match="round 2: 2 of 3"):
        train_federated(network(), clients(), TEST, experiment(), directory=tmp_path, call=dying)
    resumed = train_federated(network(), clients(), TEST, experiment(), directory=tmp_path)
    assert same_bytes(resumed.model, train_federated(network(), clients(), TEST, experiment()).model)


OTHERS = {
    "seed": {"seed": 1},
    "local": {"local": LocalTraining(lr=0.1, epochs=2, batch_size=10)},
    "strategy": {"strategy": FedBoosting()},
    "defence": {"defence": top_k(0.5)},
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_folder_with_another_training_is_refused(name, tmp_path):
    train_federated(network(), clients(), TEST, experiment(rounds=1), directory=tmp_path)
    with pytest.raises(UsageError, match="holds another training"):
        train_federated(network(), clients(), TEST, experiment(rounds=1, **OTHERS[name]), directory=tmp_path)


def scaled(factor):
    def loss(scores, targets):
        return factor * torch.nn.functional.cross_entropy(scores, targets)

    return loss


def test_a_loss_that_was_edited_in_place_is_another_training(tmp_path):
    """Both have one name; only what a client sends under them differs."""
    train_federated(network(), clients(), TEST, experiment(rounds=1, loss=scaled(1.0)), directory=tmp_path)
    train_federated(network(), clients(), TEST, experiment(rounds=1, loss=scaled(1.0)), directory=tmp_path)
    with pytest.raises(UsageError, match="holds another training"):
        train_federated(network(), clients(), TEST, experiment(rounds=1, loss=scaled(2.0)), directory=tmp_path)


def test_other_weights_data_or_poison_are_another_training(tmp_path):
    train_federated(network(), clients(), TEST, experiment(rounds=1), directory=tmp_path)
    for model, members, test in (
        (network(seed=1), clients(), TEST),
        (network(), clients(examples=41), TEST),
        (network(), clients(), blobs(30, seed=98)),
        (network(), clients(2), TEST),
        (network(), clients(poison={1: Poison(factor=-1.0)}), TEST),
    ):
        with pytest.raises(UsageError, match="holds another training"):
            train_federated(model, members, test, experiment(rounds=1), directory=tmp_path)


def test_damage_is_named(tmp_path):
    plan = experiment(rounds=2)
    train_federated(network(), clients(), TEST, plan, directory=tmp_path)
    more, rounds = replace(plan, rounds=3), tmp_path / "rounds"
    record = json.loads((rounds / "0001.json").read_text())
    state = (rounds / "0001.safetensors").read_bytes()
    (rounds / "0001.safetensors").write_bytes(state[:-1] + b"x")
    with pytest.raises(BadInputError, match=r"0001\.safetensors is not what round 1 wrote"):
        train_federated(network(), clients(), TEST, more, directory=tmp_path)
    (rounds / "0001.safetensors").write_bytes(state)
    del record["weights"]
    (rounds / "0001.json").write_text(json.dumps(record))
    with pytest.raises(BadInputError, match="not the record of a round"):
        train_federated(network(), clients(), TEST, more, directory=tmp_path)
    (rounds / "0001.json").write_text("{")
    with pytest.raises(BadInputError, match="not JSON"):
        train_federated(network(), clients(), TEST, more, directory=tmp_path)
    (rounds / "0000.json").unlink()
    with pytest.raises(BadInputError, match="round 0 is missing"):
        train_federated(network(), clients(), TEST, more, directory=tmp_path)
