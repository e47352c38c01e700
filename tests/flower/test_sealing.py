"""Sealed rounds on Flower: the mean of the plain ones, made by a server that can read none of it."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("flwr")
pytest.importorskip("tenseal")
pytest.importorskip("phe")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from sealing_keys import SCHEMES, keys_of, short_keys

from flower_messages import DirectGrid, answer, context_of, training_message, weights_app
from leakscope.errors import BadInputError, RoundFailedError, UsageError
from leakscope.federated import client_secret, error_bound, flower, save_keys, seal, train_federated
from leakscope.flower.records import read_arrays
from leakscope.flower.sealed_records import SEALED
from leakscope.sealed import to_bytes
from small_federation import blobs, clients, experiment, network

TEST = blobs(30, seed=9)
SECRETS = {number: client_secret() for number in range(3)}
KEYS = short_keys()


def secret_of(context):
    return SECRETS[context.node_config["partition-id"]]


def sealed_rounds(keys, *, model, rounds=3, options=(), mods=(), people=None):
    plan, people = experiment(rounds=rounds), people or clients()
    seal_first = flower.seal_mod(lambda: keys, secret=secret_of)
    app = weights_app(model, people, plan, [seal_first, *mods])
    strategy = flower.SealedStrategy(keys.public, SECRETS, **{"min_train_nodes": 3, **dict(options)})
    grid = DirectGrid(app, len(people))
    result = strategy.start(grid=grid, initial_arrays=ArrayRecord(model.state_dict()), num_rounds=rounds)
    return strategy, result, app


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("norm", [False, True])
def test_sealed_rounds_agree_with_plain_ones_in_process(scheme, norm):
    keys, model = keys_of(scheme), network(norm=norm)
    here = train_federated(model, clients(), TEST, experiment(rounds=1))
    strategy, result, app = sealed_rounds(keys, model=model, rounds=1)
    there = flower.open_arrays(result.arrays, keys)
    weights = list(strategy.weights[1].values())
    assert weights == pytest.approx(list(here.rounds[0].weights.values()))
    expected = here.model.state_dict()
    assert there.keys() == expected.keys()
    largest = max(float(value.abs().max()) for value in expected.values())
    # The scheme's bound, and rounding to single precision on both ways.
    bound = error_bound(keys.public, weights, 2 * largest) + 4 * largest * 2.0**-24
    off = max(float((there[name].double() - value.double()).abs().max()) for name, value in expected.items())
    assert 0 < off <= bound
    assert set(result.arrays) == {SEALED, *(name for name in expected if "num_batches" in name)}
    assert strategy.failures == {1: ()}
    assert app.heard == [set(expected)] * 3, "what is evaluated is opened too"


def test_later_rounds_start_from_the_opened_total():
    model = network()
    here = train_federated(model, clients(), TEST, experiment(rounds=3))
    _, result, _ = sealed_rounds(KEYS, model=model, rounds=3)
    there = flower.open_arrays(result.arrays, KEYS)
    assert all(torch.allclose(there[n], v, atol=3e-5) for n, v in here.model.state_dict().items())
    assert not all(torch.allclose(there[n], v, atol=1e-2) for n, v in model.state_dict().items())


def test_defences_act_before_the_update_is_sealed():
    model = network()
    _, plain, _ = sealed_rounds(KEYS, model=model, rounds=1)
    _, pruned, _ = sealed_rounds(KEYS, model=model, rounds=1, mods=[flower.defence_mod("clip:norm=0.001")])

    def moved(result):
        after = flower.open_arrays(result.arrays, KEYS)
        return max(float((after[n] - v).abs().max()) for n, v in model.state_dict().items())

    assert moved(pruned) <= 0.0011
    assert moved(plain) > 0.1


def test_the_server_gets_no_key_that_opens():
    with pytest.raises(UsageError, match=r"keys\.public"):
        flower.SealedStrategy(KEYS, SECRETS)
    with pytest.raises(UsageError, match="SealedStrategy needs 0 < min_completed"):
        flower.SealedStrategy(KEYS.public, SECRETS, min_completed=0)


def sealed_reply(message, place, *, keys=KEYS, turn=1, tensors=None, examples=4, told=None, secret=None, change=None):
    """What client `place` would send, but for what is to be wrong with it."""
    from dataclasses import replace

    from leakscope.sealed.authenticate import sign

    given = {"w": torch.full((2,), float(place))} if tensors is None else tensors
    one = replace(seal(given, keys.public, client=str(place), round=turn), num_examples=examples)
    data = to_bytes(sign(one, SECRETS[place] if secret is None else secret))
    data = data if change is None else change(data)
    record = ArrayRecord({SEALED: Array(torch.frombuffer(bytearray(data), dtype=torch.uint8).numpy())})
    return answer(message, record, examples=examples if told is None else told)


class Nodes:
    def get_node_ids(self):
        return [1, 2, 3]


def play(make_second, **options):
    """A round in which the second client sends what it should not."""
    strategy = flower.SealedStrategy(KEYS.public, SECRETS, min_train_nodes=3, **options)
    messages = strategy.configure_train(1, ArrayRecord({"w": torch.zeros(2)}), ConfigRecord(), Nodes())
    first, second, third = sorted(messages, key=lambda one: one.metadata.dst_node_id)
    replies = [sealed_reply(first, 0), make_second(second), sealed_reply(third, 2)]
    arrays, _ = strategy.aggregate_train(1, [one for one in replies if one is not None])
    return strategy, flower.open_arrays(arrays, KEYS)["w"]


def in_the_clear(message):
    return answer(message, ArrayRecord({"w": torch.ones(2)}))


def beside_it(message):
    reply = sealed_reply(message, 1)
    reply.content["arrays"] = ArrayRecord({**reply.content["arrays"], "w": Array(torch.ones(2).numpy())})
    return reply


FAULTS = {
    "truncated": (lambda m: sealed_reply(m, 1, change=lambda data: data[:20]), "ends too early"),
    "cut ciphertexts": (lambda m: sealed_reply(m, 1, change=lambda data: data[:-7]), "not authentic"),
    "replayed round": (lambda m: sealed_reply(m, 1, turn=7), "round"),
    "replayed client": (lambda m: sealed_reply(m, 0), "replayed"),
    "foreign key": (lambda m: sealed_reply(m, 1, keys=short_keys(bits=576)), "sealed with key"),
    "unknown signer": (lambda m: sealed_reply(m, 1, secret=client_secret()), "not authentic"),
    "other network": (lambda m: sealed_reply(m, 1, tensors={"v": torch.ones(2)}), "other tensors"),
    "other shape": (lambda m: sealed_reply(m, 1, tensors={"w": torch.ones(3)}), "other tensors"),
    "clear": (in_the_clear, "in the clear"),
    "clear beside": (beside_it, "in the clear beside"),
    "examples": (lambda m: sealed_reply(m, 1, told=400), "says 400 examples"),
    "no examples": (lambda m: sealed_reply(m, 1, examples=0), "signed 0"),
    "error": (lambda m: Message(Error(2, "out of memory"), reply_to=m), "out of memory"),
    "nothing": (lambda m: None, "no reply in time"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_and_never_added_up(fault):
    make, reason = FAULTS[fault]
    strategy, mean = play(make, min_completed=0.6)
    assert torch.allclose(mean, torch.full((2,), 1.0), atol=1e-5), "the mean of 0 and 2"
    ((failure,),) = strategy.failures.values()
    assert failure.client == 2
    assert reason in failure.reason
    assert strategy.weights == {1: {"0": 0.5, "2": 0.5}}
    with pytest.raises(RoundFailedError, match="2 of 3 clients completed it"):
        play(make)


def test_whole_numbers_go_beside_it_and_are_checked():
    strategy = flower.SealedStrategy(KEYS.public, SECRETS, min_train_nodes=2, min_completed=0.5)
    start = ArrayRecord({"0": torch.zeros(2), "1": torch.tensor(0), "2": torch.zeros(1)})

    class Two:
        def get_node_ids(self):
            return [1, 2]

    messages = list(strategy.configure_train(1, start, ConfigRecord(), Two()))
    mod = flower.seal_mod(lambda: KEYS, secret=secret_of)

    def send(message, place, count):
        arrays = ArrayRecord({"0": torch.ones(2), "1": count, "2": torch.ones(1)})
        return mod(message, context_of(partition=place), lambda m, c: answer(m, arrays))

    replies = [send(messages[0], 0, torch.tensor(5)), send(messages[1], 1, torch.tensor(3))]
    arrays, _ = strategy.aggregate_train(1, replies)
    opened = flower.open_arrays(arrays, KEYS)
    assert list(opened) == ["0", "1", "2"], "places are kept"
    assert int(opened["1"]) == 5
    strategy.aggregate_train(1, [replies[0], send(messages[1], 1, torch.tensor([3, 3]))])
    assert "should be []" in strategy.failures[1][0].reason


def received(mod, arrays, *, kind="train", turn=2):
    seen = []

    def app(message, context):
        seen.append(read_arrays(message).tensors)
        return answer(message, message.content["arrays"])

    return mod(training_message(arrays, kind=kind, turn=turn), context_of(), app), seen


def test_a_client_sends_nothing_that_it_cannot_seal(tmp_path):
    path = save_keys(tmp_path / "keys.json", KEYS)
    mod = flower.seal_mod(path, secret=SECRETS[0], client="ann")
    assert SECRETS[0].hex() not in repr(mod)
    assert str(SECRETS[0]) not in repr(mod)
    good, _ = received(mod, ArrayRecord({"w": torch.ones(2)}))
    assert set(good.content["arrays"]) == {SEALED}
    for arrays, reason in [
        ({"w": torch.tensor([float("nan")])}, "NaN"),
        ({"w": torch.tensor([17.0])}, "bound"),
    ]:
        reply, _ = received(mod, ArrayRecord(arrays))
        assert reason in reply.error.reason
    reply, _ = received(mod, ArrayRecord({"w": torch.ones(2)}), kind="evaluate")
    assert "only replies to training" in reply.error.reason

    def silent(message, context):
        return Message(RecordDict({"arrays": message.content["arrays"], "metrics": MetricRecord()}), reply_to=message)

    reply = mod(training_message(ArrayRecord({"w": torch.ones(2)})), context_of(), silent)
    assert "how many examples" in reply.error.reason


def test_a_client_opens_totals_only():
    mod = flower.seal_mod(lambda: KEYS, secret=SECRETS[0])
    one, _ = received(mod, ArrayRecord({"w": torch.ones(2)}))
    reply, seen = received(mod, one.content["arrays"])
    assert "one client" in reply.error.reason
    assert not seen
    with pytest.raises(BadInputError, match="in the clear"):
        flower.open_arrays(ArrayRecord({"w": torch.ones(2)}), KEYS)


def test_what_was_handed_out_is_not_changed_in_place():
    model = network()
    _, result, _ = sealed_rounds(KEYS, model=model, rounds=1)
    before = dict(result.arrays)
    received(flower.seal_mod(lambda: KEYS, secret=SECRETS[0]), result.arrays)
    assert dict(result.arrays) == before


def test_capture_says_that_it_cannot_read(tmp_path):
    strategy = flower.SealedStrategy(KEYS.public, SECRETS, min_train_nodes=3)
    capture = flower.Capture(strategy, tmp_path)
    messages = capture.configure_train(1, ArrayRecord({"w": torch.zeros(2)}), ConfigRecord(), Nodes())
    capture.aggregate_train(1, [sealed_reply(message, place) for place, message in enumerate(messages)])
    (counts,) = capture.log.counts
    assert counts.captured == 0
    assert all("sealed" in one["reason"] for one in counts.failed)
    assert len(counts.failed) == 3
