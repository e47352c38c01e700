from __future__ import annotations

import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Error, Message

from flower_messages import (
    answer,
    client_that_adds,
    context_of,
    random_change,
    sent_tensors,
    state_of,
    training_message,
)
from leakscope.catalogue import DEFENCES
from leakscope.defences.prune import prune
from leakscope.errors import UsageError
from leakscope.federated import flower
from leakscope.rng import child_seed
from leakscope.types import LocalTraining
from tiny import batch_of, convolutional, dense, shared

INSIDE = {"transforms", "dp-sgd", "fed-cdp", "soteria", "precode", "key-lock"}


def defended(spec, change, model, *, context=None, turn=1, **options):
    mod = flower.defence_mod(spec, seed=0, **options)
    message = training_message(ArrayRecord(state_of(model)), turn=turn)
    return mod(message, context or context_of(), client_that_adds(change))


def difference(reply, model):
    before = state_of(model)
    return {name: value - before[name] for name, value in sent_tensors(reply).items() if value.is_floating_point()}


def test_the_public_name_is_in_federated():
    assert flower.__name__ == "leakscope.federated.flower"
    assert {"Capture", "defence_mod", "gate_mod", "simulate"} <= set(dir(flower))
    assert all(callable(getattr(flower, name)) for name in flower.__all__)
    with pytest.raises(AttributeError, match="no_such"):
        _ = flower.no_such


def test_pruning_leaves_the_largest_tenth_of_the_change_and_the_weights_elsewhere_as_they_were():
    model = dense()
    change = random_change(model)
    sent = difference(defended("prune:fraction=0.9", change, model), model)
    expected = prune(0.9).rewrite(change, torch.Generator())
    kept = 0
    for name, value in expected.items():
        assert torch.allclose(sent[name], value, rtol=0, atol=1e-12)
        assert bool((sent[name][value == 0] == 0).all())
        kept += int(value.count_nonzero())
    assert 0 < kept <= 0.11 * sum(value.numel() for value in change.values())


def test_what_the_server_gets_is_the_weights_plus_the_defended_change():
    model = dense()
    change = random_change(model)
    reply = defended("clip:norm=0.5", change, model)
    length = torch.cat([value.reshape(-1) for value in difference(reply, model).values()]).norm()
    whole = torch.cat([value.reshape(-1) for value in change.values()])
    assert float(length) == pytest.approx(0.5, rel=1e-6)
    sent = torch.cat([value.reshape(-1) for value in difference(reply, model).values()])
    assert torch.allclose(sent, 0.5 * whole / whole.norm(), atol=1e-9)


def test_top_k_sends_in_the_next_round_what_it_held_back():
    model, context = dense(), context_of()
    change = random_change(model)
    zero = {name: torch.zeros_like(value) for name, value in change.items()}
    first = difference(defended("top-k:share=0.5", change, model, context=context), model)
    second = difference(defended("top-k:share=0.5", zero, model, context=context, turn=2), model)
    for name, value in change.items():
        assert torch.allclose(first[name] + second[name], value, atol=1e-12)
    assert any(bool(value.any()) for value in second.values())


def test_another_client_holds_back_its_own():
    model = dense()
    change = random_change(model)
    zero = {name: torch.zeros_like(value) for name, value in change.items()}
    defended("top-k:share=0.5", change, model, context=context_of())
    second = difference(defended("top-k:share=0.5", zero, model, context=context_of(partition=1)), model)
    assert not any(bool(value.any()) for value in second.values())


def test_noise_is_repeatable_for_a_seed_and_another_for_every_round_client_and_update():
    model = dense()
    change = random_change(model)

    def noise(change=change, *, turn=1, partition=0):
        context = context_of(partition=partition)
        sent = difference(defended("gaussian-noise:sigma=0.01", change, model, context=context, turn=turn), model)
        return torch.cat([(sent[name] - value).reshape(-1) for name, value in change.items()])

    first = noise()
    assert torch.allclose(first, noise(), atol=1e-12)
    assert float(first.std()) == pytest.approx(0.01, rel=0.1)
    for other in (noise(turn=2), noise(partition=1), noise(random_change(model, seed=1))):
        assert abs(float(torch.corrcoef(torch.stack([first, other]))[0, 1])) < 0.2


def test_without_a_seed_nobody_can_repeat_the_noise():
    model, change = dense(), random_change(dense())
    mod = flower.defence_mod("gaussian-noise:sigma=0.01")
    message = training_message(ArrayRecord(state_of(model)))
    one, two = (sent_tensors(mod(message, context_of(), client_that_adds(change))) for _ in range(2))
    assert not torch.equal(one["1.weight"], two["1.weight"])


def test_arrays_without_names_are_defended_alike():
    model = dense()
    change = random_change(model)
    named = sent_tensors(defended("prune:fraction=0.9", change, model))
    weights = [value.numpy() for value in state_of(model).values()]
    message = training_message(ArrayRecord(weights))

    def train(message, context):
        after = [value + change[name].numpy() for value, name in zip(weights, state_of(model), strict=True)]
        return answer(message, ArrayRecord(after))

    reply = flower.defence_mod("prune:fraction=0.9", seed=0)(message, context_of(), train)
    sent = reply.content.array_records["arrays"].to_numpy_ndarrays()
    assert list(reply.content.array_records["arrays"]) == [str(place) for place in range(len(weights))]
    for array, value in zip(sent, named.values(), strict=True):
        assert torch.equal(torch.from_numpy(array), value)


def test_counters_go_out_untouched_and_statistics_stay_where_they_are_told_to():
    model = convolutional(norm=True)
    change = random_change(model)
    counted = {"1.num_batches_tracked": torch.tensor(3), "1.running_mean": torch.full((3,), 0.25).double()}
    sent = sent_tensors(defended("gaussian-noise:sigma=0.1", change | counted, model))
    assert sent["1.num_batches_tracked"].dtype == torch.long
    assert int(sent["1.num_batches_tracked"]) == 3
    assert torch.equal(sent["1.running_mean"], state_of(model)["1.running_mean"] + 0.25)
    kept = sent_tensors(defended("gaussian-noise:sigma=0.1", change | counted, model, buffers="keep"))
    assert int(kept["1.num_batches_tracked"]) == 0
    assert torch.equal(kept["1.running_mean"], state_of(model)["1.running_mean"])


def test_dp_fedavg_refuses_statistics_that_its_noise_does_not_cover():
    model = convolutional(norm=True)
    reply = defended("dp-fedavg", random_change(model), model)
    assert reply.has_error()
    assert "buffers" in reply.error.reason
    assert defended("dp-fedavg", random_change(model), model, buffers="keep").has_content()


@pytest.mark.parametrize("name", sorted(DEFENCES))
def test_every_defence_is_a_mod_or_asks_for_the_training(name):
    if name in INSIDE:
        with pytest.raises(UsageError, match="OwnTraining"):
            flower.defence_mod(name)
    else:
        assert flower.defence_mod(name).defence.name == name


def test_a_chain_asks_for_the_training_where_a_part_does():
    with pytest.raises(UsageError, match="OwnTraining"):
        flower.defence_mod("clip:norm=1+dp-sgd")
    assert flower.defence_mod("clip:norm=1+gaussian-noise:sigma=0.1").defence.name == "clip+gaussian-noise"


def test_what_cannot_be_defended_is_not_sent():
    model = dense()
    other = random_change(model) | {"1.weight": torch.full((24, 36), float("nan")).double()}
    reply = defended("prune:fraction=0.5", other, model)
    assert reply.has_error()
    assert "NaN" in reply.error.reason

    def renames(message, context):
        return answer(message, ArrayRecord({"w": torch.zeros(1)}))

    reply = flower.defence_mod("prune")(training_message(ArrayRecord(state_of(model))), context_of(), renames)
    assert reply.has_error()
    assert "other arrays" in reply.error.reason


def test_other_messages_and_errors_pass():
    model = dense()
    mod = flower.defence_mod("prune:fraction=0.9")
    message = training_message(ArrayRecord(state_of(model)), kind="evaluate")
    change = random_change(model)
    whole = sent_tensors(mod(message, context_of(), client_that_adds(change)))
    assert torch.equal(whole["1.weight"], state_of(model)["1.weight"] + change["1.weight"])

    def fails(message, context):
        return Message(Error(2, "broken"), reply_to=message)

    assert mod(training_message(ArrayRecord(state_of(model))), context_of(), fails).error.reason == "broken"
    # An action of its own is training all the same.
    action = mod(
        training_message(ArrayRecord(state_of(model)), kind="train.mine"), context_of(), client_that_adds(change)
    )
    assert int(difference(action, model)["1.weight"].count_nonzero()) < 200


LOCAL = LocalTraining(lr=0.1, epochs=2, batch_size=2, shuffle=True, momentum=0.9)


@pytest.mark.parametrize("spec", ["dp-sgd", "fed-cdp", "soteria", "precode", "key-lock", "transforms:policy=3-1-7"])
def test_a_defence_inside_the_training_does_what_the_client_of_leakscope_does(spec):
    shape = (3, 16, 16) if spec.startswith("transforms") else (1, 6, 6)
    batch = batch_of([0, 1, 2], shape=shape)

    def build():
        if spec.startswith("transforms"):
            torch.manual_seed(3)
            return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 4)).double()
        return convolutional()

    defence = flower.defence_mod(spec, seed=0, training=flower.OwnTraining(build, lambda context: batch, LOCAL))
    context = context_of()
    message = training_message(flower.initial_arrays(build(), spec))

    def never(message, context):
        raise AssertionError("the app's own training must not run")

    reply = defence(message, context, never)
    assert reply.has_content(), reply.error.reason
    before = dict(message.content.array_records["arrays"].to_torch_state_dict())
    sent = {name: value - before[name] for name, value in sent_tensors(reply).items() if value.is_floating_point()}
    network = defence.defence.harden(build(), seed=0)
    network.client.train()
    seed = child_seed(0, "round", 0, 0)
    expected = shared(network, batch, defence=defence.defence, local=LOCAL, seed=seed).tensors
    assert set(expected) <= set(sent)
    for name, value in expected.items():
        assert torch.allclose(sent[name], value, atol=1e-10), name
    assert not any(name in sent for name in network.private)
    assert reply.content.metric_records["metrics"]["num-examples"] == 3


def private_of(context):
    kept = context.state.array_records["leakscope.memory"].to_torch_state_dict()
    return {name.removeprefix("private/"): value for name, value in kept.items() if name.startswith("private/")}


def test_private_parameters_stay_in_the_clients_context_and_move_on():
    batch = batch_of([0, 1, 2])
    training = flower.OwnTraining(convolutional, lambda context: batch, LOCAL)
    mod = flower.defence_mod("key-lock", seed=0, training=training)
    context = context_of()
    message = training_message(flower.initial_arrays(convolutional(), "key-lock"))
    mod(message, context, None)
    first = private_of(context)
    mod(message, context, None)
    second = private_of(context)
    network = mod.defence.harden(convolutional(), seed=0)
    assert set(first) == network.private
    start = network.client.state_dict()
    moved = [name for name in first if not torch.equal(first[name], start[name])]
    assert moved
    assert all(not torch.equal(first[name], second[name]) for name in moved)


def test_gradients_are_defended_as_gradients():
    model, batch = dense(), batch_of([0, 1])
    training = flower.OwnTraining(dense, lambda context: batch)
    with pytest.raises(UsageError, match="sends"):
        flower.defence_mod("prune:fraction=0.5", training=training)
    mod = flower.defence_mod("prune:fraction=0.5", seed=0, training=training, sends="gradient")
    sent = sent_tensors(mod(training_message(ArrayRecord(state_of(model))), context_of(), None))
    network = dense().train()
    expected = shared(network, batch, defence=mod.defence).tensors
    for name, value in expected.items():
        assert torch.allclose(sent[name], value, atol=1e-12)
