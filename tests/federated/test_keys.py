"""Key-lock in rounds: keys and lock layers stay with clients, and the model is worth little without them."""

from __future__ import annotations

import copy

import pytest
import torch

from leakscope.defences.key_lock import key_lock
from leakscope.errors import UsageError
from leakscope.federated import ServerOptimiser, train_federated
from leakscope.federated.evaluation import evaluate
from leakscope.federated.keys import evaluate_keys
from leakscope.tasks import Classification
from leakscope.types import SharedUpdate
from small_federation import blobs, clients, experiment, network, state_of

TEST = blobs(90, seed=99)


@pytest.fixture(scope="module")
def locked():
    plan = experiment(rounds=6, defence=key_lock(key_length=16))
    return train_federated(network(), clients(), TEST, plan)


def test_nothing_private_is_sent_or_averaged(locked):
    private = locked.network.private
    assert len(private) == 5
    reply = copy.deepcopy(locked.clients[0]).take_part(locked.network, locked.experiment, round=0)
    assert isinstance(reply.update, SharedUpdate)
    assert not private & (reply.update.tensors.keys() | reply.buffers.keys())
    one, other = (client.memory.private for client in locked.clients[:2])
    assert all(not torch.equal(one[name], other[name]) for name in private)


def test_the_servers_model_holds_no_clients_key_or_locks(locked):
    """Neither trained nor drawn: the first client's own would be those that the seed gives the server, too."""
    held = locked.model.state_dict()
    assert locked.network.client is locked.model
    for client in locked.clients:
        start = copy.deepcopy(client)
        start.start(network(), locked.experiment)
        for name in locked.network.private:
            assert not torch.equal(held[name], client.memory.private[name])
            assert not torch.equal(held[name], start.memory.private[name])
    assert all(not held[name].any() for name in locked.network.private)


def test_evaluating_with_clients_values_leaves_the_network_as_it_was(locked):
    before = state_of(locked.model)
    memories = [client.memory for client in locked.clients]
    accuracy, _ = evaluate(locked.model, TEST, loss=None, task=Classification(), memories=memories)
    assert accuracy == pytest.approx(locked.accuracies[-1])
    assert all(torch.equal(value, before[name]) for name, value in locked.model.state_dict().items())


def test_lock_layers_are_trained_and_keys_are_not(locked):
    client = copy.deepcopy(locked.clients[1])
    before = dict(client.memory.private)
    client.start(network(), locked.experiment)
    changed = {name: not torch.equal(value, before[name]) for name, value in client.memory.private.items()}
    assert changed == {name: not name.endswith(".key") for name in before}


def test_each_clients_key_a_random_key_and_untrained_locks(locked):
    found = evaluate_keys(locked, network(), TEST)
    assert list(found.own) == [0, 1, 2]
    # What the last record says is the mean over the clients, each with its own.
    assert found.mean == pytest.approx(locked.accuracies[-1])
    assert found.mean > 0.9
    # It is the lock layers that count: keys from U[0, 1) are much alike, and another one changes little.
    assert found.initial_locks < found.mean - 0.2
    assert found.random_and_initial < found.initial_locks - 0.05
    assert found.random_key > found.initial_locks + 0.2
    assert evaluate_keys(locked, network(), TEST) == found


def test_without_anything_private_there_is_nothing_to_compare():
    plain = train_federated(network(), clients(), TEST, experiment(rounds=1))
    with pytest.raises(UsageError, match="keeps keys with the clients"):
        evaluate_keys(plain, network(), TEST)


def test_gradients_train_lock_layers_with_the_servers_rule():
    """One client that shares gradients moves its locks as the server moves all else."""
    plan = experiment(
        rounds=3, local=None, defence=key_lock(key_length=4), server=ServerOptimiser(lr=0.2, momentum=0.5)
    )
    found = train_federated(network(), clients(1), TEST, plan)
    client = clients(1)[0]
    model = client.start(network(), plan).client
    model.train()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
    for _ in range(3):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(client.train.inputs), client.train.targets).backward()
        optimiser.step()
    state = model.state_dict()
    for name, value in found.clients[0].memory.private.items():
        assert torch.allclose(value, state[name], atol=1e-5)
