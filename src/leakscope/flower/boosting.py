"""FedBoosting for an app of one's own: clients count by how their models do on each other's examples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from leakscope.errors import RoundFailedError
from leakscope.federated.aggregation import average_tensors
from leakscope.federated.faults import Failure
from leakscope.federated.fedboosting import FedBoosting, Formula, boosting_weights
from leakscope.flower.checking import check_completed, check_share, log_failures
from leakscope.flower.records import ROUND, read_arrays, to_record

# Of one loss that a validator sends back, as in rounds in process.
_LOSS_BYTES = 8


class BoostingStrategy(FedAvg):
    """Flower's FedAvg with the weights of FedBoosting instead of numbers of examples.

    After training, every client's model goes to every other client of the round as an evaluation message, which the
    app's own evaluate function answers: n² messages of a model each. A client that does not answer does not validate;
    a client without a finite training loss, or whose model has no finite loss, does not count. Both are named in
    `failures`. Put `CheckedStrategy` round it for all other faults.

    Args:
        formula: "released" or "thesis", which favours the worse models: see `leakscope.federated.FedBoosting`.
        training_loss: Whether training losses count.
        mixing: Share of a client's own weights in the model that others validate, 0.9 in the release; None: all of it.
        min_completed: Share of the replies that must count, else the round fails.
        train_loss_key: Where clients say their training loss.
        eval_loss_key: Where the app's evaluate function says its loss.
        time_limit: Seconds to wait for the validations of a round.
        options: Those of Flower's FedAvg.

    Attributes:
        weights: how much each client counted, by round.
        validation: the loss of each counted model at each validator, by round.
        failures: clients that did not count or did not validate, with reasons, by round.
        bytes_up: arrays and losses that the server received, by round.
        bytes_down: models that clients were handed, to train and to validate, by round.
    """

    def __init__(
        self,
        *,
        formula: Formula = "released",
        training_loss: bool = True,
        mixing: float | None = None,
        min_completed: float = 0.5,
        train_loss_key: str = "train_loss",
        eval_loss_key: str = "eval_loss",
        time_limit: float = 3_600.0,
        **options: Any,
    ) -> None:
        """Weigh by validation."""
        super().__init__(**options)
        # Checks the options.
        self._rule = FedBoosting(formula, training_loss, mixing)
        check_share("BoostingStrategy", min_completed)
        self._min_completed = min_completed
        self._train_loss_key, self._eval_loss_key, self._time_limit = train_loss_key, eval_loss_key, time_limit
        self._grid: Grid | None = None
        self.weights: dict[int, dict[int, float]] = {}
        self.validation: dict[int, list[list[float]]] = {}
        self.failures: dict[int, tuple[Failure, ...]] = {}
        self.bytes_up: dict[int, int] = {}
        self.bytes_down: dict[int, int] = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As FedAvg does."""
        self._grid = grid
        messages = list(super().configure_train(server_round, arrays, config, grid))
        self.bytes_down[server_round] = len(messages) * _count_bytes(arrays)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Let clients validate each other's models, and average by what comes of it."""
        received = list(replies)
        failures = list[Failure]()
        answered = [reply for reply in received if not reply.has_error()]
        self.bytes_up[server_round] = sum(map(_count_arrays, answered))
        if self._rule.training_loss:
            failures += [_no_loss(reply, self._train_loss_key) for reply in answered if self._train_loss(reply) is None]
        sound = _without(received, failures)
        # Before Flower's own check, which ends the training where one client sends fewer metrics than the others.
        valid, _ = self._check_and_log_replies(sound, is_train=True)
        counted, losses = self._cross_validate(server_round, valid, failures) if valid else ([], torch.zeros(0, 0))
        self.failures[server_round] = tuple(failures)
        log_failures(server_round, failures)
        if not answered:
            return None, None
        check_completed(
            server_round, sound=len(counted), asked=len(received), share=self._min_completed, failures=failures
        )
        return self._average(server_round, counted, losses)

    def _average(
        self, server_round: int, counted: Sequence[Message], losses: torch.Tensor
    ) -> tuple[ArrayRecord, MetricRecord]:
        training = None
        if self._rule.training_loss:
            training = torch.tensor([self._train_loss(reply) for reply in counted], dtype=torch.float64)
        weights = boosting_weights(losses, training, formula=self._rule.formula)
        nodes = [reply.metadata.src_node_id for reply in counted]
        self.weights[server_round] = dict(zip(nodes, weights, strict=True))
        self.validation[server_round] = losses.tolist()
        arrays = average_tensors([read_arrays(reply).tensors for reply in counted], weights)
        metrics = self.train_metrics_aggr_fn([reply.content for reply in counted], self.weighted_by_key)
        return to_record(arrays), metrics

    def _cross_validate(
        self, server_round: int, replies: Sequence[Message], failures: list[Failure]
    ) -> tuple[list[Message], torch.Tensor]:
        """The replies that count, and the loss of each at each client that answered for all of them."""
        answers = self._ask(server_round, replies)
        nodes = [reply.metadata.src_node_id for reply in replies]
        judges = [node for node in nodes if all((place, node) in answers for place in range(len(nodes)))]
        failures += [Failure(node, "it did not validate every model") for node in nodes if node not in judges]
        judges = [node for node in judges if any(math.isfinite(answers[p, node]) for p in range(len(nodes)))]
        kept = [place for place in range(len(nodes)) if all(math.isfinite(answers[place, node]) for node in judges)]
        lost = [node for place, node in enumerate(nodes) if place not in kept]
        failures += [Failure(node, "its model has no finite loss and does not count") for node in lost]
        if not judges:
            raise RoundFailedError(f"round {server_round}: no client could validate; does the app answer evaluation?")
        rows = [[answers[place, node] for node in judges] for place in kept]
        return [replies[place] for place in kept], torch.tensor(rows, dtype=torch.float64)

    def _models(self, replies: Sequence[Message]) -> list[ArrayRecord]:
        """What others validate of each reply: its weights, or these mixed with all others'."""
        mixing, others = self._rule.mixing, len(replies) - 1
        if mixing is None or not others:
            return [next(iter(reply.content.array_records.values())) for reply in replies]
        tensors, rest = [read_arrays(reply).tensors for reply in replies], (1.0 - mixing) / others
        return [
            to_record(average_tensors(tensors, [mixing if other == place else rest for other in range(len(tensors))]))
            for place in range(len(tensors))
        ]

    def _ask(self, server_round: int, replies: Sequence[Message]) -> dict[tuple[int, int], float]:
        """The loss of model i at node j, by (i, j); what did not come is not there."""
        assert self._grid is not None
        messages = []
        for place, arrays in enumerate(self._models(replies)):
            config = ConfigRecord({ROUND: server_round})
            content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
            messages += [
                # The group comes back with the answer: it says whose model was tried.
                Message(content, other.metadata.src_node_id, "evaluate", group_id=str(place))
                for other in replies
            ]
            self.bytes_down[server_round] = self.bytes_down.get(server_round, 0) + len(replies) * _count_bytes(arrays)
        found = {}
        for answer in self._grid.send_and_receive(messages, timeout=self._time_limit):
            told = {} if answer.has_error() else next(iter(answer.content.metric_records.values()), {})
            if isinstance(loss := told.get(self._eval_loss_key), (int, float)):
                found[int(answer.metadata.group_id), answer.metadata.src_node_id] = float(loss)
        self.bytes_up[server_round] += _LOSS_BYTES * len(found)
        return found

    def _train_loss(self, reply: Message) -> float | None:
        """What a client says; None where it says none that is finite."""
        told = next(iter(reply.content.metric_records.values()), {})
        loss = told.get(self._train_loss_key)
        return float(loss) if isinstance(loss, (int, float)) and math.isfinite(loss) else None


def _no_loss(reply: Message, key: str) -> Failure:
    return Failure(
        reply.metadata.src_node_id,
        f"it says no finite {key!r}, by which FedBoosting weighs; send it as a metric, or use training_loss=False",
    )


def _without(replies: Sequence[Message], failures: Sequence[Failure]) -> list[Message]:
    out = {failure.client for failure in failures}
    return [reply for reply in replies if reply.metadata.src_node_id not in out]


def _count_arrays(reply: Message) -> int:
    return sum(map(_count_bytes, reply.content.array_records.values()))


def _count_bytes(arrays: ArrayRecord) -> int:
    """As Flower sends them."""
    return sum(len(array.data) for array in arrays.values())
