"""An experiment as a Flower strategy: clients answer from elsewhere, and the rounds are leakscope's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import nn

from leakscope.defence import Hardened
from leakscope.errors import BadInputError, RoundFailedError
from leakscope.federated.client import Client, Reply
from leakscope.federated.experiment import Experiment
from leakscope.federated.play import RoundRecord, play_round
from leakscope.federated.server import Server
from leakscope.flower.client_side import ARRAYS, METRICS, TEST, VALIDATE, WHO, read_reply
from leakscope.flower.records import ROUND, tell_error, to_record, to_tensors
from leakscope.types import Batch

_CONFIG = "config"
_POLL_SECONDS = 0.2
_NOBODY = Batch(torch.zeros(1, 1), torch.zeros(1, dtype=torch.long))


class ExperimentStrategy(Strategy):
    """Plays the rounds of an experiment with clients that Flower reaches.

    Selection, checks, weights, the server's step and the test are those of `leakscope.federated.train_federated`: the
    same experiment gives the same model. A client that fails is named in the record of its round, and too few that
    complete one end the training with the reason.

    Args:
        model: The network without the defence.
        test: Examples that accuracy and loss are taken on after every round.
        experiment: How to train.
        clients: How many clients there are; the first round waits for them.
        time_limit: Seconds to wait for clients to connect, and for answers to what is not training.
    """

    def __init__(
        self, model: nn.Module, test: Batch, experiment: Experiment, *, clients: int, time_limit: float = 3_600.0
    ) -> None:
        """Nothing is sent yet."""
        super().__init__()
        self.server = Server(experiment.harden(model), experiment)
        self.records: list[RoundRecord] = []
        self._test, self._expected, self._time_limit = test, clients, time_limit
        self._grid: Grid | None = None
        self._clients: dict[int, RemoteClient] = {}
        self._replies: dict[int, Message] = {}

    @property
    def initial_arrays(self) -> ArrayRecord:
        """What `start` hands out first."""
        return to_record(self.server.public_state())

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Hand the model to those that take part in this round."""
        self._grid = grid
        if not self._clients:
            self._clients = self._find_clients(grid)
        self.server.load(to_tensors(arrays))
        selected = self.server.select(list(self._clients), round=server_round - 1)
        config[ROUND] = server_round
        content = RecordDict({ARRAYS: arrays, _CONFIG: config})
        return [Message(content, self._clients[number].node, "train") for number in selected]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Play the round with the answers that came."""
        self._replies = {reply.metadata.src_node_id: reply for reply in replies}
        turn = server_round - 1
        record = play_round(self.server, list(self._clients.values()), self._test, round=turn, call=self._read)
        self._replies = {}
        if self.server.network.private:
            accuracy, loss = self._test_at_clients(server_round)
            record = replace(record, accuracy=accuracy, loss=loss)
        self.records.append(record)
        numbers = {"accuracy": record.accuracy, "loss": record.loss, "failures": len(record.failures)}
        return to_record(self.server.public_state()), MetricRecord(numbers)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: the round has tested its model."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing."""
        return None

    def summary(self) -> None:
        """Nothing that the experiment does not say of itself."""

    def _find_clients(self, grid: Grid) -> dict[int, RemoteClient]:
        """Who is connected, by the numbers that clients have themselves: nodes have new ones each time."""
        end = time.monotonic() + self._time_limit
        while len(nodes := list(grid.get_node_ids())) < self._expected:
            if time.monotonic() > end:
                raise RoundFailedError(
                    f"{len(nodes)} of {self._expected} clients connected within {self._time_limit:g} s"
                )
            time.sleep(_POLL_SECONDS)
        answers = self._ask(nodes, WHO, None, turn=0)
        found = {}
        for node, told in answers.items():
            number = int(told["client"])
            if number in found:
                raise RoundFailedError(f"two clients have the number {number}; give each a number of its own")
            held_out = _NOBODY if told["holds-out"] else None
            found[number] = RemoteClient(number, _NOBODY, held_out, node=node, validate_at=self._validate)
        if len(found) < self._expected:
            raise RoundFailedError(f"{len(found)} of {self._expected} clients said who they are")
        return found

    def _read(self, client: Client, network: Hardened, experiment: Experiment, turn: int) -> Reply:
        """What a client sent; an error of its own, or no answer, makes it fail in this round."""
        assert isinstance(client, RemoteClient)
        message = self._replies.get(client.node)
        if message is None:
            raise BadInputError("it sent no reply in time")
        if message.has_error():
            raise BadInputError(tell_error(message))
        buffers = frozenset(name for name, _ in network.client.named_buffers())
        return read_reply(message, kind=experiment.kind, buffers=buffers)

    def _validate(self, client: RemoteClient, model: Hardened, turn: int) -> float:
        state = {
            name: value for name, value in model.client.state_dict().items() if name not in self.server.network.private
        }
        answers = self._ask([client.node], VALIDATE, to_record(state), turn=turn + 1)
        if client.node not in answers:
            raise BadInputError("it did not say what a model comes to on its held-out examples")
        return float(answers[client.node]["loss"])

    def _test_at_clients(self, server_round: int) -> tuple[float, float]:
        """Mean over the clients, each with its own values in the network."""
        nodes = [client.node for client in self._clients.values()]
        told = self._ask(nodes, TEST, to_record(self.server.public_state()), turn=server_round)
        if len(told) < len(nodes):
            raise RoundFailedError(f"round {server_round - 1}: {len(told)} of {len(nodes)} clients tested the model")
        rows = [told[node] for node in nodes]
        return fmean(float(row["accuracy"]) for row in rows), fmean(float(row["loss"]) for row in rows)

    def _ask(
        self, nodes: Sequence[int], kind: str, arrays: ArrayRecord | None, *, turn: int
    ) -> dict[int, dict[str, Any]]:
        """The numbers that nodes answer with; one that fails is left out."""
        assert self._grid is not None
        config = ConfigRecord({ROUND: turn})
        content = RecordDict({_CONFIG: config} if arrays is None else {ARRAYS: arrays, _CONFIG: config})
        sent = [Message(content, node, kind) for node in nodes]
        replies = self._grid.send_and_receive(sent, timeout=self._time_limit)
        return {
            reply.metadata.src_node_id: dict(reply.content.metric_records[METRICS])
            for reply in replies
            if reply.has_content()
        }


@dataclass
class RemoteClient(Client):
    """A client elsewhere: its number, the node that it is reached at, and whether it holds examples out."""

    node: int = 0
    validate_at: Callable[[RemoteClient, Hardened, int], float] | None = field(default=None, repr=False)

    def validate(self, model: nn.Module | Hardened, experiment: Experiment, *, round: int) -> float:
        """What the client answers."""
        assert self.validate_at is not None
        assert isinstance(model, Hardened)
        return self.validate_at(self, model, round)
