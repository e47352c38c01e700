from __future__ import annotations

import csv
import json
import time

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord
from flwr.serverapp.strategy import Strategy

from flower_messages import answer, state_of, training_message
from flower_network import LOCAL, examples, network
from leakscope.audits.captured import CapturedUpdate, CaptureRequest
from leakscope.errors import UsageError
from leakscope.federated import flower
from leakscope.files import load_state, load_update
from leakscope.flower.leakage import LeakageLog
from leakscope.flower.round_audit import RoundAuditor, choose_round
from tiny import convolutional, shared


class Recorder(Strategy):
    """A strategy that notes what it gets, and hands out the same weights to two clients."""

    def __init__(self):
        self.replies = None

    def configure_train(self, server_round, arrays, config, grid):
        return [training_message(arrays, turn=server_round, node=node) for node in (11, 12)]

    def aggregate_train(self, server_round, replies):
        self.replies = list(replies)
        return ArrayRecord(state_of(network())), MetricRecord({"done": server_round})

    def configure_evaluate(self, server_round, arrays, config, grid):
        return []

    def aggregate_evaluate(self, server_round, replies):
        return None

    def summary(self):
        pass


def change_of(client):
    return shared(network(), examples(client), seed=0, local=LOCAL).tensors


def trained(message, client):
    before = dict(message.content.array_records["arrays"].to_torch_state_dict())
    after = {name: value + change_of(client)[name] for name, value in before.items()}
    return answer(message, ArrayRecord(after), examples=1, **{"partition-id": client})


def play(strategy, turn=1, *, arrays=None, reply=None):
    handed = ArrayRecord(state_of(network())) if arrays is None else arrays
    messages = strategy.configure_train(turn, handed, ConfigRecord(), None)
    answers = [(reply or trained)(message, client) for client, message in enumerate(messages)]
    return strategy.aggregate_train(turn, answers), answers


def test_every_update_is_a_file_that_says_how_it_came_about_and_the_strategy_goes_on(tmp_path):
    inner = Recorder()
    (arrays, metrics), answers = play(flower.Capture(inner, tmp_path, local=LOCAL))
    assert metrics["done"] == 1
    assert arrays is not None
    assert inner.replies == answers
    for client in range(2):
        update = load_update(tmp_path / "round-0001" / "updates" / f"client-{client}.safetensors")
        assert (update.kind, update.num_examples, update.local) == ("delta", 1, LOCAL)
        for name, value in change_of(client).items():
            assert torch.allclose(update.tensors[name], value, atol=1e-6)
    weights = load_state(tmp_path / "round-0001" / "model.safetensors")
    assert all(torch.equal(weights[name], value) for name, value in state_of(network()).items())


def test_arrays_without_names_get_those_of_the_network(tmp_path):
    model = convolutional(norm=True)
    handed = ArrayRecord([value.numpy() for value in state_of(model).values()])

    def reply(message, client):
        before = message.content.array_records["arrays"].to_numpy_ndarrays()
        return answer(message, ArrayRecord([np.asarray(value + 1) for value in before]))

    strategy = flower.Capture(Recorder(), tmp_path, model=lambda: convolutional(norm=True))
    play(strategy, arrays=handed, reply=reply)
    update = load_update(tmp_path / "round-0001" / "updates" / "client-11.safetensors")
    assert set(update.tensors) == {name for name, _ in model.named_parameters()}
    assert set(update.buffers) == {name for name, _ in model.named_buffers()}
    assert update.local is None
    assert torch.allclose(update.tensors["0.bias"], torch.ones(3).double())
    unnamed = flower.Capture(Recorder(), tmp_path / "unnamed")
    play(unnamed, arrays=handed, reply=reply)
    update = load_update(tmp_path / "unnamed" / "round-0001" / "updates" / "client-11.safetensors")
    assert list(update.tensors)[:2] == ["0", "1"]


def test_a_client_that_sends_nothing_is_counted_by_name(tmp_path):
    def reply(message, client):
        return trained(message, 0) if client == 0 else Message(Error(6, "the leakage gate"), reply_to=message)

    strategy = flower.Capture(Recorder(), tmp_path)
    play(strategy, reply=reply)
    told = json.loads((tmp_path / "leakage.json").read_text())["rounds"][0]
    assert (told["replies"], told["captured"]) == (2, 1)
    assert told["failed"] == [{"client": 12, "reason": "the client sent no update: the leakage gate"}]


def test_a_reply_of_another_shape_is_named_and_does_not_hide_the_others(tmp_path):
    def reply(message, client):
        return trained(message, 0) if client == 0 else answer(message, ArrayRecord({"w": torch.zeros(2)}))

    inner = Recorder()
    strategy = flower.Capture(inner, tmp_path)
    play(strategy, reply=reply)
    (counts,) = strategy.log.counts
    assert counts.captured == 1
    assert "same tensors" in counts.failed[0]["reason"]
    assert len(inner.replies) == 2


def test_a_client_that_was_handed_other_weights_has_a_file_of_its_own(tmp_path):
    class Personal(Recorder):
        def configure_train(self, server_round, arrays, config, grid):
            first = super().configure_train(server_round, arrays, config, grid)[0]
            other = {name: value + 1 for name, value in state_of(network()).items()}
            return [first, training_message(ArrayRecord(other), node=12)]

    play(flower.Capture(Personal(), tmp_path))
    folder = tmp_path / "round-0001"
    assert torch.equal(load_state(folder / "model.safetensors")["1.bias"], state_of(network())["1.bias"])
    other = load_state(folder / "model-client-1.safetensors")["1.bias"]
    assert torch.equal(other, state_of(network())["1.bias"] + 1)
    update = load_update(folder / "updates" / "client-1.safetensors")
    assert torch.allclose(update.tensors["1.bias"], change_of(1)["1.bias"], atol=1e-6)


def audited(tmp_path, **options):
    audit = flower.RoundAudit((1, 6, 6), attack="fc-inversion", **options)
    return flower.Capture(Recorder(), tmp_path, model=network, local=LOCAL, audit=audit)


def test_a_sample_of_every_round_is_attacked_beside_the_training(tmp_path):
    strategy = audited(tmp_path, sample=2, truth="flower_network:examples")
    play(strategy, 3)
    # The round is over before the audit's process can have said anything.
    assert not strategy.log.rows
    strategy.close()
    rows = strategy.log.rows
    assert [(row["round"], row["client"]) for row in rows] == [(3, 0), (3, 1)]
    assert all(row["status"] == "ok" and row["worst_psnr"] > 40 and row["explained"] > 0.9 for row in rows)
    with (tmp_path / "leakage.csv").open() as file:
        assert [row["client"] for row in csv.DictReader(file)] == ["0", "1"]
    told = json.loads((tmp_path / "leakage.json").read_text())
    assert [(one["captured"], one["audited"], one["skipped"]) for one in told["rounds"]] == [(2, 2, 0)]


def request_of(*names, model="flower_network:slow_network"):
    updates = tuple(CapturedUpdate("absent", "absent", name) for name in names)
    return CaptureRequest(updates, model, "fc-inversion", "C", (1, 6, 6))


def test_what_does_not_fit_into_the_time_is_named(tmp_path):
    log = LeakageLog(tmp_path)
    auditor = RoundAuditor(log, seconds=0.5, finish_seconds=0.7)
    began = time.perf_counter()
    for turn in range(1, 7):
        auditor.submit(turn, request_of("client-0", "client-1"))
    assert time.perf_counter() - began < 0.5
    auditor.close()
    assert [counts.skipped for counts in log.counts] == [2] * 6
    assert all(not counts.waiting for counts in log.counts)
    names = [[one["name"] for one in counts.not_audited] for counts in log.counts]
    assert names == [["client-0", "client-1"]] * 6
    reasons = [counts.not_audited[0]["reason"] for counts in log.counts]
    assert reasons[0] == "not done within 0.5 s"
    assert reasons.count("no time was left for it 0.7 s after the last round") >= 3
    # The next after the first is the one farthest from it.
    assert reasons[5] == "not done within 0.5 s"


def test_rounds_that_come_faster_than_they_are_attacked_are_all_attacked_in_the_end(tmp_path):
    strategy = audited(tmp_path, sample=1, truth="flower_network:examples")
    for turn in (1, 2, 3, 4):
        play(strategy, turn)
    told = json.loads((tmp_path / "leakage.json").read_text())["rounds"]
    assert [len(one["waiting"]) + one["audited"] for one in told] == [1, 1, 1, 1], "nothing is silently missing"
    strategy.close()
    assert [(one.audited, one.skipped, one.waiting) for one in strategy.log.counts] == [(1, 0, [])] * 4


def test_a_budget_that_does_not_reach_all_rounds_is_spread_over_them():
    waiting, begun = set(range(1, 18)), []
    while len(begun) < 5:
        begun.append(choose_round(waiting, begun))
        waiting.remove(begun[-1])
    assert begun == [1, 17, 9, 5, 13]


def test_times_that_are_none_are_refused():
    with pytest.raises(UsageError, match="finish_seconds"):
        flower.RoundAudit((1, 6, 6), finish_seconds=-1.0)


def test_functions_that_a_process_cannot_find_are_refused(tmp_path):
    with pytest.raises(UsageError, match="top level"):
        flower.Capture(Recorder(), tmp_path, model=lambda: network(), audit=flower.RoundAudit((1, 6, 6)))
    with pytest.raises(UsageError, match="model="):
        flower.Capture(Recorder(), tmp_path, audit=flower.RoundAudit((1, 6, 6)))
    with pytest.raises(UsageError, match="unknown attack"):
        flower.RoundAudit((1, 6, 6), attack="no-such")


def test_rounds_of_another_run_are_not_mixed_with_these(tmp_path):
    play(flower.Capture(Recorder(), tmp_path))
    with pytest.raises(UsageError, match="earlier run"):
        flower.Capture(Recorder(), tmp_path)


def test_a_folder_that_cannot_be_written_does_not_end_the_training(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    inner = Recorder()
    play(flower.Capture(inner, tmp_path / "file" / "captured"))
    assert len(inner.replies) == 2
    assert "was not written" in caplog.text
