"""The same experiment on Flower: what `train_federated` comes to, to the bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

pytest.importorskip("flwr")

from flower_messages import DirectGrid
from leakscope.errors import RoundFailedError, UsageError
from leakscope.federated import Client, FedBoosting, ServerOptimiser, flower, train_federated
from leakscope.files import load_update
from leakscope.registry import get_defence
from small_federation import blobs, clients, experiment, network, same_bytes

TEST = blobs(30, seed=9)


def on_flower(plan, *, model=None, people=None, mods=(), broken=(), wrap=None, trained_with=None):
    """The strategy after its rounds, on a grid without Ray."""
    model, people = model or network(), people or clients()
    strategy = flower.ExperimentStrategy(model, TEST, plan, clients=len(people), time_limit=5.0)
    app = flower.client_app(
        model, lambda context: people[context.node_config["partition-id"]], trained_with or plan, test=TEST, mods=mods
    )
    grid = DirectGrid(app, len(people), broken=broken)
    (wrap(strategy) if wrap else strategy).start(
        grid=grid, initial_arrays=strategy.initial_arrays, num_rounds=plan.rounds, timeout=5.0
    )
    return strategy


def agree(strategy, here):
    assert same_bytes(strategy.server.model, here.model)
    assert tuple(strategy.records) == here.rounds


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fraction": 0.5, "rounds": 4},
        {"local": None, "batch_size": 8, "server": ServerOptimiser(lr=0.1, momentum=0.9)},
        {"server": ServerOptimiser("adam", lr=0.01)},
        {"strategy": FedBoosting()},
        {"strategy": FedBoosting(mixing=0.9)},
        {"defence": get_defence("gaussian-noise", sigma=0.01)},
        {"defence": get_defence("top-k", share=0.3)},
        {"defence": get_defence("dp-sgd")},
    ],
)
def test_the_model_and_every_record_are_those_of_the_rounds_in_process(options):
    plan = experiment(**options)
    agree(on_flower(plan), train_federated(network(), clients(), TEST, plan))


def test_running_statistics_come_back_too():
    plan = experiment()
    model = network(norm=True)
    agree(on_flower(plan, model=model), train_federated(model, clients(), TEST, plan))


def test_clients_keep_their_keys_and_test_with_them():
    from leakscope.types import Batch

    def pictures(count, seed):
        values = torch.rand(count, 1, 6, 6, generator=torch.Generator().manual_seed(seed))
        return Batch(values, torch.arange(count) % 3)

    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 3))
    people = [Client.of(number, pictures(20, number)) for number in range(2)]
    plan = experiment(rounds=2, defence=get_defence("key-lock", key_length=16))
    test = pictures(12, 9)
    strategy = flower.ExperimentStrategy(model, test, plan, clients=2, time_limit=5.0)
    app = flower.client_app(model, lambda context: people[context.node_config["partition-id"]], plan, test=test)
    grid = DirectGrid(app, 2)
    strategy.start(grid=grid, initial_arrays=strategy.initial_arrays, num_rounds=2)
    here = train_federated(model, people, test, plan)
    public = strategy.server.public_state()
    theirs = dict(here.model.named_parameters())
    assert all(torch.equal(value, theirs[name]) for name, value in public.items() if name in theirs)
    assert not any("key" in name for name in public)
    assert [record.accuracy for record in strategy.records] == pytest.approx(here.accuracies)
    assert [record.loss for record in strategy.records] == pytest.approx(here.losses, abs=1e-6)


@pytest.mark.parametrize("spec", ["prune:fraction=0.7", "clip:norm=0.05", "top-k:share=0.3", "sign"])
def test_a_defence_as_a_mod_gives_the_model_of_the_defence_in_process(spec):
    name, _, rest = spec.partition(":")
    options = {key: float(value) for key, value in (item.split("=") for item in filter(None, rest.split(",")))}
    plan = experiment(defence=get_defence(name, **options))
    mods = [flower.defence_mod(spec, seed=0, sends="change")]
    strategy = on_flower(plan, mods=mods, trained_with=replace(plan, defence=None))
    here = train_federated(network(), clients(), TEST, plan)
    assert same_bytes(strategy.server.model, here.model)
    assert not same_bytes(here.model, train_federated(network(), clients(), TEST, experiment()).model)


def test_a_client_that_fails_is_named_and_below_the_minimum_the_round_fails():
    plan = experiment(min_completed=0.6)
    strategy = on_flower(plan, broken=(1,))
    assert [record.failures[0].client for record in strategy.records] == [1, 1, 1]
    assert "no reply in time" in strategy.records[0].failures[0].reason
    with pytest.raises(RoundFailedError, match="2 of 3 clients completed it"):
        on_flower(experiment(), broken=(1,))


def test_a_gate_is_a_failure_with_its_reason():
    def refuses(message, context, call_next):
        from flwr.app import Error, Message

        if message.metadata.message_type == "train" and context.node_config["partition-id"] == 2:
            return Message(Error(6, "kept back"), reply_to=message)
        return call_next(message, context)

    strategy = on_flower(experiment(min_completed=0.5), mods=[refuses])
    assert {(one.client, "kept back" in one.reason) for one in strategy.records[0].failures} == {(2, True)}


@pytest.mark.parametrize(("spoil", "reason"), [("nan", "NaN"), ("shape", "should be"), ("name", "not a shared")])
def test_a_reply_that_is_not_sound_is_not_averaged(spoil, reason):
    def spoils(message, context, call_next):
        reply = call_next(message, context)
        if message.metadata.message_type == "train" and context.node_config["partition-id"] == 0:
            arrays = dict(reply.content.array_records["arrays"].to_torch_state_dict())
            if spoil == "nan":
                arrays["0.bias"][0] = float("nan")
            elif spoil == "shape":
                arrays["0.bias"] = torch.zeros(7)
            else:
                arrays["extra"] = arrays.pop("0.bias")
            from flwr.app import ArrayRecord

            reply.content["arrays"] = ArrayRecord(arrays)
        return reply

    strategy = on_flower(experiment(min_completed=0.5), mods=[spoils])
    for record in strategy.records:
        assert [one.client for one in record.failures] == [0]
        assert reason in record.failures[0].reason
        assert set(record.weights) == {1, 2}


def test_an_experiment_can_be_captured(tmp_path):
    plan = experiment(rounds=1)
    strategy = on_flower(plan, wrap=lambda inner: flower.Capture(inner, tmp_path, local=plan.local, sends="change"))
    files = sorted((tmp_path / "round-0001" / "updates").iterdir())
    assert len(files) == 3
    update = load_update(files[0])
    assert (update.kind, update.local) == ("delta", plan.local)
    assert len(strategy.records) == 1


def test_sealed_experiments_and_clients_without_numbers_are_refused():
    people = [Client(0, blobs()), Client(0, blobs())]
    with pytest.raises(UsageError, match="own number"):
        flower.apps(network(), people, TEST, experiment())
