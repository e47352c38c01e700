from __future__ import annotations

import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from flower_messages import answer, training_message
from leakscope.errors import RoundFailedError, UsageError
from leakscope.federated import flower
from leakscope.federated.fedboosting import boosting_weights

# Loss of the model of client i at client j.
LOSSES = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [0.5, 0.25, 0.125]]
TRAIN = [0.5, 1.0, 2.0]


class Validators:
    """Clients that know what each model comes to with each of them; the model says whose it is."""

    def __init__(self, losses, *, deaf=()):
        self.losses, self.deaf, self.kinds, self.models = losses, deaf, [], {}

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            self.kinds.append(message.metadata.message_type)
            judge = message.metadata.dst_node_id - 1
            weight = float(message.content.array_records["arrays"]["w"].numpy()[0])
            model = round(weight)
            self.models[model] = weight
            if judge in self.deaf:
                replies.append(Message(Error(2, "no"), reply_to=message))
                continue
            told = MetricRecord({"eval_loss": self.losses[model][judge], "num-examples": 1})
            replies.append(Message(RecordDict({"metrics": told}), reply_to=message))
        return replies[::-1]


def play(losses=LOSSES, *, deaf=(), train=TRAIN, **options):
    strategy = flower.BoostingStrategy(**options)
    strategy._grid = Validators(losses, deaf=deaf)
    replies = []
    for place in range(3):
        message = training_message(ArrayRecord({"w": torch.zeros(1)}), node=place + 1)
        arrays = ArrayRecord({"w": torch.tensor([float(place)])})
        told = {} if train[place] is None else {"train_loss": train[place]}
        replies.append(answer(message, arrays, examples=10 * place + 1, **told))
    arrays, _ = strategy.aggregate_train(1, replies)
    return strategy, float(arrays["w"].numpy()[0])


@pytest.mark.parametrize("options", [{}, {"formula": "thesis"}, {"training_loss": False}])
def test_the_mean_has_the_weights_of_fedboosting(options):
    strategy, mean = play(**options)
    training = torch.tensor(TRAIN) if options.get("training_loss", True) else None
    expected = boosting_weights(torch.tensor(LOSSES), training, formula=options.get("formula", "released"))
    assert list(strategy.weights[1].values()) == pytest.approx(expected)
    assert mean == pytest.approx(expected[1] + 2 * expected[2], abs=1e-6)
    assert strategy.validation[1] == LOSSES
    assert strategy._grid.kinds == ["evaluate"] * 9


def test_a_client_that_cannot_validate_has_a_model_that_counts_all_the_same():
    strategy, _ = play(deaf=(1,))
    expected = boosting_weights(torch.tensor(LOSSES)[:, [0, 2]], torch.tensor(TRAIN), formula="released")
    assert list(strategy.weights[1].values()) == pytest.approx(expected)


def test_a_model_without_a_finite_loss_does_not_count():
    broken = [LOSSES[0], [float("nan")] * 3, LOSSES[2]]
    strategy, _ = play(broken)
    assert set(strategy.weights[1]) == {1, 3}


def test_what_it_weighs_by_must_be_there():
    with pytest.raises(RoundFailedError, match="no client could validate"):
        play(deaf=(0, 1, 2))
    with pytest.raises(RoundFailedError, match="client 1: it says no finite 'train_loss'"):
        play(train=[float("nan")] * 3)
    with pytest.raises(UsageError, match="formula"):
        flower.BoostingStrategy(formula="other")
    assert flower.BoostingStrategy().aggregate_train(1, []) == (None, None)


def test_training_is_asked_for_as_fedavg_does(monkeypatch):
    from flwr.serverapp.strategy import FedAvg

    monkeypatch.setattr(FedAvg, "configure_train", lambda self, *told: ["asked"])
    strategy = flower.BoostingStrategy()
    assert strategy.configure_train(1, ArrayRecord(), ConfigRecord(), "grid") == ["asked"]
    assert strategy._grid == "grid"


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), None])
def test_a_client_without_a_training_loss_is_left_out_by_name(loss):
    strategy, mean = play(train=[0.5, loss, 2.0])
    expected = boosting_weights(torch.tensor(LOSSES)[[0, 2]][:, [0, 2]], torch.tensor([0.5, 2.0]), formula="released")
    assert list(strategy.weights[1].values()) == pytest.approx(expected)
    assert mean == pytest.approx(2 * expected[1], abs=1e-6)
    ((failure,),) = strategy.failures.values()
    assert failure.client == 2
    assert "'train_loss'" in failure.reason
    with pytest.raises(RoundFailedError, match="2 of 3 clients completed it"):
        play(train=[0.5, loss, 2.0], min_completed=1.0)


def test_who_did_not_validate_or_does_not_count_is_in_the_failures():
    strategy, _ = play([LOSSES[0], [float("nan")] * 3, LOSSES[2]], deaf=(0,))
    told = {one.client: one.reason for one in strategy.failures[1]}
    assert "did not validate" in told[1]
    assert "no finite loss" in told[2]


def test_others_validate_a_model_that_is_mixed_with_theirs():
    strategy, _ = play(mixing=0.8)
    # Own weights are 0, 1 and 2; the rest is shared by the other two.
    assert strategy._grid.models == pytest.approx({0: 0.3, 1: 1.0, 2: 1.7}, abs=1e-6)
    with pytest.raises(UsageError, match="mixing"):
        flower.BoostingStrategy(mixing=0.4)


def test_bytes_are_counted_as_flower_sends_them(monkeypatch):
    from flwr.serverapp.strategy import FedAvg

    strategy, _ = play()
    size = len(ArrayRecord({"w": torch.zeros(1)})["w"].data)
    assert strategy.bytes_up == {1: 3 * size + 9 * 8}
    assert strategy.bytes_down == {1: 9 * size}
    monkeypatch.setattr(FedAvg, "configure_train", lambda self, *told: ["one", "two"])
    strategy.configure_train(2, ArrayRecord({"w": torch.zeros(1)}), ConfigRecord(), "grid")
    assert strategy.bytes_down[2] == 2 * size
