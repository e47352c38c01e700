"""The baseline in one place sees as many examples as the clients together."""

from __future__ import annotations

import pytest
import torch

from leakscope.errors import UsageError
from leakscope.federated import Client, FedBoosting, Poison, train_federated
from leakscope.federated.central import centralise
from leakscope.types import LocalTraining
from small_federation import blobs, clients, experiment, network


def count_seen(members, plan):
    """Examples that all local steps of a round take together, where everybody takes part."""
    if plan.local is None:
        return sum(len(client.train) if plan.batch_size is None else plan.batch_size for client in members)
    return sum(len(step) for client in members for step in plan.local.order(len(client.train)))


@pytest.mark.parametrize(
    "options",
    [
        {"local": LocalTraining(0.1, epochs=3, batch_size=7)},
        {"local": LocalTraining(0.1, steps=4, batch_size=5)},
        {"local": None},
        {"local": None, "batch_size": 6},
    ],
)
def test_as_many_examples_are_seen(options):
    members, plan = clients(), experiment(strategy=FedBoosting(), **options)
    central, same = centralise(members, plan)
    assert count_seen(central, same) == count_seen(members, plan)
    assert torch.equal(central[0].train.inputs, torch.cat([client.train.inputs for client in members]))
    assert same.strategy.name == "fedavg"


def test_a_fraction_of_the_clients_is_a_fraction_of_the_steps():
    members = [Client(number, blobs(40, seed=number)) for number in range(4)]
    plan = experiment(fraction=0.5, local=LocalTraining(0.1, epochs=2, batch_size=8))
    central, same = centralise(members, plan)
    assert (same.local.steps, same.local.epochs, same.local.shuffle) == (20, None, True)  # type: ignore[union-attr]
    assert count_seen(central, same) == 2 * 2 * 40
    assert centralise(members, experiment(fraction=0.5, local=None))[1].batch_size == 80


def test_poison_is_left_out_and_the_model_learns():
    members = clients(poison={1: Poison(flip_labels=3)})
    central, plan = centralise(members, experiment(rounds=3))
    assert train_federated(network(), central, blobs(90, seed=99), plan).accuracies[-1] > 0.95
    with pytest.raises(UsageError, match="at least one client"):
        centralise([], plan)
