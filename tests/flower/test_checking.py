from __future__ import annotations

import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from flower_messages import answer, training_message
from leakscope.errors import RoundFailedError, UsageError
from leakscope.federated import flower

WEIGHTS = {"w": torch.zeros(2), "count": torch.tensor(0)}


class Asks(FedAvg):
    """Flower's own averaging, of clients that need no grid to be found."""

    def __init__(self, nodes=(1, 2, 3)):
        super().__init__(fraction_evaluate=0.5)
        self.nodes = nodes

    def configure_train(self, server_round, arrays, config, grid):
        return [training_message(arrays, node=node) for node in self.nodes]


def good(message, value=1.0, **options):
    return answer(message, ArrayRecord({"w": torch.full((2,), value), "count": torch.tensor(1)}), **options)


def play(replies, **options):
    strategy = flower.CheckedStrategy(Asks(), **options)
    messages = strategy.configure_train(1, ArrayRecord(WEIGHTS), ConfigRecord(), None)
    made = [reply(message) for reply, message in zip(replies, messages, strict=False)]
    arrays, _ = strategy.aggregate_train(1, made)
    return strategy, arrays


def test_sound_replies_are_averaged_as_flower_does():
    strategy, arrays = play([lambda m: good(m, 1.0), lambda m: good(m, 2.0), lambda m: good(m, 6.0)])
    assert arrays["w"].numpy().tolist() == [3.0, 3.0]
    assert strategy.failures == {1: ()}


BAD = {
    "error": (lambda m: Message(Error(2, "out of memory"), reply_to=m), "out of memory"),
    "nan": (lambda m: good(m, float("nan")), "w holds NaN or Inf"),
    "shape": (lambda m: answer(m, ArrayRecord({"w": torch.zeros(3), "count": torch.tensor(1)})), "should be [2]"),
    "name": (lambda m: answer(m, ArrayRecord({"v": torch.zeros(2)})), "count, v, w on one side only"),
    "kind": (
        lambda m: answer(m, ArrayRecord({"w": torch.zeros(2), "count": torch.tensor(1.0)})),
        "count should be [] of torch.int64",
    ),
    "examples": (lambda m: good(m, examples=0), "'num-examples' ≥ 1"),
    "no metrics": (
        lambda m: Message(RecordDict({"arrays": ArrayRecord(WEIGHTS), "metrics": MetricRecord()}), reply_to=m),
        "on how many examples",
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_fault_is_named_and_left_out_of_the_mean(fault):
    reply, reason = BAD[fault]
    strategy, arrays = play([lambda m: good(m, 1.0), reply, lambda m: good(m, 3.0)], min_completed=0.6)
    assert arrays["w"].numpy().tolist() == [2.0, 2.0]
    ((failure,),) = strategy.failures.values()
    assert failure.client == 2
    assert reason in failure.reason


def test_a_client_that_does_not_answer_is_named_and_too_few_end_the_round():
    strategy, _ = play([good, good], min_completed=0.6)
    assert [(one.client, one.reason) for one in strategy.failures[1]] == [(3, "it sent no reply in time")]
    with pytest.raises(RoundFailedError, match="round 1: 2 of 3 clients completed it, at least 3 must"):
        play([good, good])


def test_a_share_is_a_share():
    with pytest.raises(UsageError, match="min_completed"):
        flower.CheckedStrategy(Asks(), min_completed=0)
