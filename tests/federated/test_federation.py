"""Rounds of training: what they compute, that they repeat to the bit, and that nothing of the caller's changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from leakscope.defences.noise import gaussian_noise
from leakscope.defences.top_k import top_k
from leakscope.errors import UsageError
from leakscope.federated import Client, FedAvg, FedBoosting, Poison, ServerOptimiser, train_federated
from leakscope.types import Batch, LocalTraining
from small_federation import LOCAL, blobs, clients, experiment, network, same_bytes, state_of

TEST = blobs(90, seed=99)


def train(model=None, **options):
    return train_federated(model or network(), clients(), TEST, experiment(**options))


def weighted_mean(tensors, weights):
    return sum(weight * tensor for tensor, weight in zip(tensors, weights, strict=True)) / sum(weights)


@torch.no_grad()
def loss_on(model, batch):
    return float(functional.cross_entropy(model(batch.inputs), batch.targets))


def test_learns():
    found = train(rounds=4)
    assert found.losses == sorted(found.losses, reverse=True)
    assert found.accuracies[-1] > 0.95
    assert len(found.rounds) == 4
    assert found.rounds[0].weights == {0: 36 / 135, 1: 45 / 135, 2: 54 / 135}


def test_one_round_of_fedavg_against_torch_optim():
    """Plain SGD over the examples in order, averaged by hand."""
    local = LocalTraining(lr=0.1, epochs=1, batch_size=9)
    members, start = clients(), network()
    found = train_federated(start, members, TEST, experiment(rounds=1, local=local))
    ends = []
    for member in members:
        model = network()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for inputs, targets in zip(member.train.inputs.split(9), member.train.targets.split(9), strict=True):
            optimiser.zero_grad()
            functional.cross_entropy(model(inputs), targets).backward()
            optimiser.step()
        ends.append(state_of(model))
    sizes = [len(member.train) for member in members]
    for name, value in state_of(found.model).items():
        assert torch.allclose(value, weighted_mean([end[name] for end in ends], sizes), atol=1e-6)


def test_fedsgd_is_gradient_descent_on_all_examples():
    members = clients()
    options = {"local": None, "server": ServerOptimiser(lr=0.5, momentum=0.9)}
    found = train_federated(network(), members, TEST, experiment(rounds=4, **options))
    model = network()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    inputs = torch.cat([member.train.inputs for member in members])
    targets = torch.cat([member.train.targets for member in members])
    for _ in range(4):
        optimiser.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimiser.step()
    for name, value in state_of(found.model).items():
        assert torch.allclose(value, state_of(model)[name], atol=1e-5)


def test_server_adam_against_torch_optim():
    """The mean change stands for a negative gradient."""
    plain = experiment(rounds=1)
    members, first = clients(), network()
    changed = train_federated(first, members, TEST, plain).model
    found = train_federated(first, members, TEST, replace(plain, server=ServerOptimiser("adam", lr=0.01)))
    model = network()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for name, parameter in model.named_parameters():
        parameter.grad = state_of(first)[name] - state_of(changed)[name]
    optimiser.step()
    for name, value in state_of(found.model).items():
        assert torch.allclose(value, state_of(model)[name], atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"local": None, "batch_size": 8, "server": ServerOptimiser(lr=0.3)},
        {"fraction": 0.6, "strategy": FedBoosting()},
        {"defence": gaussian_noise(0.01)},
    ],
    ids=["fedavg", "fedsgd", "fedboosting", "noise"],
)
def test_the_same_seed_gives_the_same_bytes_in_any_order_of_clients(options):
    start = network(dropout=0.2)
    one = train_federated(start, clients(), TEST, experiment(**options))
    other = train_federated(start, clients()[::-1], TEST, experiment(**options))
    assert same_bytes(one.model, other.model)
    assert one.rounds == other.rounds
    changed = train_federated(start, clients(), TEST, experiment(**options, seed=1))
    assert not same_bytes(one.model, changed.model)


def test_the_caller_keeps_model_clients_and_random_state():
    start, members = network(norm=True), clients()
    before, buffers = state_of(start), [member.train.inputs.clone() for member in members]
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    options = {"defence": top_k(0.5, feedback=True), "strategy": FedBoosting(mixing=0.9)}
    train_federated(start, members, TEST, experiment(**options))
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(value, before[name]) for name, value in state_of(start).items())
    assert all(torch.equal(member.train.inputs, kept) for member, kept in zip(members, buffers, strict=True))
    assert all(member.memory.held_back == {} for member in members)
    assert start.training


def test_a_fraction_takes_part_drawn_anew_for_every_round():
    members = clients(6, examples=20)
    found = train_federated(network(), members, TEST, experiment(rounds=12, fraction=0.5))
    chosen = [tuple(record.weights) for record in found.rounds]
    assert {len(one) for one in chosen} == {3}
    assert len(set(chosen)) > 4
    assert {number for one in chosen for number in one} == set(range(6))


def test_batch_statistics_are_the_clients_mean():
    start, members = network(norm=True), clients(2)
    found = train_federated(start, members, TEST, experiment(rounds=1, local=LocalTraining(lr=1e-9, batch_size=200)))
    expected = []
    for member in members:
        model = network(norm=True)
        model.train()
        model(member.train.inputs)
        expected.append(state_of(model)["1.running_mean"])
    sizes = [len(member.train) for member in members]
    assert torch.allclose(state_of(found.model)["1.running_mean"], weighted_mean(expected, sizes), atol=1e-6)
    assert int(state_of(found.model)["1.num_batches_tracked"]) == 1
    frozen = train_federated(start, members, TEST, experiment(rounds=1, freeze_batch_norm=True))
    assert torch.equal(state_of(frozen.model)["1.running_mean"], state_of(start)["1.running_mean"])


@pytest.mark.parametrize("norm", [False, True])
def test_cross_validation_is_the_loss_of_each_clients_model_on_the_others_held_out_examples(norm):
    members, start = clients(), network(norm=norm)
    found = train_federated(start, members, TEST, experiment(rounds=1, strategy=FedBoosting()))
    alone = [train_federated(start, [replace(member)], TEST, experiment(rounds=1)).model for member in members]
    expected = [[loss_on(model, judge.held_out) for judge in members] for model in alone]
    assert found.rounds[0].validation is not None
    assert torch.allclose(torch.tensor(found.rounds[0].validation), torch.tensor(expected), atol=1e-5)
    losses = [loss_on(model, member.train) for model, member in zip(alone, members, strict=True)]
    assert list(found.rounds[0].train_losses.values()) == pytest.approx(losses, abs=1e-5)
    assert list(found.rounds[0].weights.values()) == pytest.approx(
        FedBoosting().weigh(
            [_Told(loss) for loss in losses],  # type: ignore[arg-type]
            torch.tensor(expected),
        ),
        abs=1e-4,
    )


class _Told:
    def __init__(self, train_loss: float) -> None:
        self.train_loss = train_loss


def test_gradients_are_validated_one_step_downhill():
    members, start = clients(2), network()
    options = {"rounds": 1, "local": None, "strategy": FedBoosting(), "server": ServerOptimiser(lr=0.5)}
    found = train_federated(start, members, TEST, experiment(**options))
    model = network()
    functional.cross_entropy(model(members[0].train.inputs), members[0].train.targets).backward()
    torch.optim.SGD(model.parameters(), lr=0.5).step()
    assert found.rounds[0].validation is not None
    assert found.rounds[0].validation[0][1] == pytest.approx(loss_on(model, members[1].held_out), abs=1e-5)
    # There is no local model yet: the loss is that of the model received.
    assert found.rounds[0].train_losses[0] == pytest.approx(loss_on(start, members[0].train), abs=1e-6)


def test_a_poisoned_client_validates_with_its_poisoned_data():
    poison = {1: Poison(flip_labels=3)}
    members, start = clients(2, poison=poison), network()
    found = train_federated(start, members, TEST, experiment(rounds=1, strategy=FedBoosting()))
    honest = train_federated(start, clients(1), TEST, experiment(rounds=1)).model
    held_out = members[1].held_out
    assert held_out is not None
    flipped = replace(held_out, targets=2 - held_out.targets)
    assert found.rounds[0].validation is not None
    assert found.rounds[0].validation[0][1] == pytest.approx(loss_on(honest, flipped), abs=1e-5)


def test_mixing_validates_nine_tenths_of_a_client_and_its_share_of_the_others():
    members, start = clients(), network()
    plain = train_federated(start, members, TEST, experiment(rounds=1, strategy=FedBoosting()))
    mixed = train_federated(start, members, TEST, experiment(rounds=1, strategy=FedBoosting(mixing=0.9)))
    ends = [state_of(train_federated(start, [member], TEST, experiment(rounds=1)).model) for member in members]
    model = network()
    model.load_state_dict({name: 0.9 * ends[0][name] + 0.05 * (ends[1][name] + ends[2][name]) for name in ends[0]})
    held_out = members[2].held_out
    assert held_out is not None
    expected = loss_on(model, held_out)
    assert mixed.rounds[0].validation is not None
    assert mixed.rounds[0].validation[0][2] == pytest.approx(expected, abs=1e-5)
    assert mixed.rounds[0].validation != plain.rounds[0].validation


def test_bytes_are_counted_with_the_models_sent_for_validation():
    average, boosting, mixed = (
        train(rounds=1, strategy=strategy).rounds[0] for strategy in (FedAvg(), FedBoosting(), FedBoosting(mixing=0.9))
    )
    numbers = sum(value.numel() for value in network().parameters())
    model = 4 * numbers
    assert average.bytes_up == pytest.approx(3 * model, abs=3 * 60)
    assert average.bytes_down == pytest.approx(3 * model, abs=3 * 60)
    # Each of three clients receives the two others' models, and sends three losses.
    assert boosting.bytes_down - average.bytes_down == pytest.approx(6 * model, abs=6 * 60)
    assert boosting.bytes_up - average.bytes_up == 9 * 8
    assert mixed.bytes_down - average.bytes_down == pytest.approx(9 * model, abs=9 * 60)


def test_released_weights_hold_out_against_a_poisoned_client_and_written_ones_do_not():
    poison = {2: Poison(flip_labels=3)}
    weights = {}
    for formula in ("released", "thesis"):
        strategy = FedBoosting(formula, training_loss=False)
        members = clients(poison=poison)
        found = train_federated(network(), members, TEST, experiment(rounds=6, strategy=strategy))
        weights[formula] = found.rounds[-1].weights[2]
    assert weights["released"] < 1 / 3 < weights["thesis"]


def test_a_poisoned_update_is_turned_round():
    members = clients(1)
    honest = train_federated(network(), members, TEST, experiment(rounds=1)).model
    members = clients(1, poison={0: Poison(factor=-2.0)})
    turned = train_federated(network(), members, TEST, experiment(rounds=1)).model
    start = state_of(network())
    for name, value in state_of(turned).items():
        assert torch.allclose(value - start[name], -2 * (state_of(honest)[name] - start[name]), atol=1e-6)


def test_flipped_labels_count_down_from_the_last_class():
    batch = Batch(torch.zeros(3, 1), torch.tensor([0, 1, 2]))
    assert Poison(flip_labels=3).spoil_data(batch).targets.tolist() == [2, 1, 0]
    with pytest.raises(UsageError, match="flip_labels=2 needs class labels"):
        Poison(flip_labels=2).spoil_data(batch)


def test_the_last_tenth_is_held_out():
    batch = blobs(25)
    client = Client.of(0, batch)
    assert client.held_out is not None
    assert (len(client.train), len(client.held_out)) == (23, 2)
    assert torch.equal(torch.cat([client.train.inputs, client.held_out.inputs]), batch.inputs)
    assert Client.of(0, blobs(3)).held_out is None
    assert len(Client.of(0, blobs(2), held_out=0.9).train) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "Experiment.rounds"),
        ({"fraction": 0.0}, "0 < fraction"),
        ({"min_completed": 1.5}, "0 < min_completed"),
        ({"batch_size": 4}, "local.batch_size"),
    ],
)
def test_experiments_that_cannot_work_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        experiment(**options)


def test_options_of_the_server_that_do_nothing_are_refused():
    with pytest.raises(UsageError, match="momentum has no effect"):
        ServerOptimiser("adam", momentum=0.9)
    with pytest.raises(UsageError, match="no optimiser 'adamw'"):
        ServerOptimiser("adamw")  # type: ignore[arg-type]


def test_clients_need_numbers_of_their_own():
    twins = [Client(0, blobs()), Client(0, blobs())]
    with pytest.raises(UsageError, match="each with its own number"):
        train_federated(network(), twins, TEST, experiment())


def test_fedboosting_needs_held_out_examples():
    members = [Client(number, blobs(seed=number)) for number in range(2)]
    with pytest.raises(UsageError, match="hold out"):
        train_federated(network(), members, TEST, experiment(strategy=FedBoosting()))


def test_local_training_is_what_the_client_declares():
    reply = clients()[0].take_part(network(), experiment(), round=0)
    assert reply.update.local == LOCAL  # type: ignore[union-attr]
    assert reply.num_examples == reply.update.num_examples == 36
