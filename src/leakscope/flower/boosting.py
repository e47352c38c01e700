"""FedBoosting for an app of one's own: clients count by how their models do on each other's examples."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from leakscope.errors import RoundFailedError
from leakscope.federated.aggregation import average_tensors
from leakscope.federated.fedboosting import FedBoosting, Formula, boosting_weights
from leakscope.flower.records import ROUND, read_arrays, to_record

_LOG = logging.getLogger("flwr")


class BoostingStrategy(FedAvg):
    """Flower's FedAvg with the weights of FedBoosting instead of numbers of examples.

    After training, every client's model goes to every other client of the round as an evaluation message, which the
    app's own evaluate function answers: n² messages of a model each. A client that does not answer does not validate;
    a model without a finite loss does not count. Put `CheckedStrategy` round it for all other faults.

    Args:
        formula: "released" or "thesis", which favours the worse models: see `leakscope.federated.FedBoosting`.
        training_loss: Whether training losses count.
        train_loss_key: Where clients say their training loss.
        eval_loss_key: Where the app's evaluate function says its loss.
        time_limit: Seconds to wait for the validations of a round.
        options: Those of Flower's FedAvg.
    """

    def __init__(
        self,
        *,
        formula: Formula = "released",
        training_loss: bool = True,
        train_loss_key: str = "train_loss",
        eval_loss_key: str = "eval_loss",
        time_limit: float = 3_600.0,
        **options: Any,
    ) -> None:
        """Weigh by validation."""
        super().__init__(**options)
        # Checks the options.
        self._rule = FedBoosting(formula, training_loss)
        self._train_loss_key, self._eval_loss_key, self._time_limit = train_loss_key, eval_loss_key, time_limit
        self._grid: Grid | None = None
        self.weights: dict[int, dict[int, float]] = {}
        self.validation: dict[int, list[list[float]]] = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As FedAvg does."""
        self._grid = grid
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Let clients validate each other's models, and average by what comes of it."""
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        if not valid:
            return None, None
        counted, losses = self._cross_validate(server_round, valid)
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

    def _cross_validate(self, server_round: int, replies: Sequence[Message]) -> tuple[list[Message], torch.Tensor]:
        """The replies that count, and the loss of each at each client that answered for all of them."""
        answers = self._ask(server_round, replies)
        nodes = [reply.metadata.src_node_id for reply in replies]
        judges = [node for node in nodes if all((place, node) in answers for place in range(len(nodes)))]
        if missing := [node for node in nodes if node not in judges]:
            _LOG.warning("round %d: clients %s did not validate every model", server_round, missing)
        judges = [node for node in judges if any(math.isfinite(answers[p, node]) for p in range(len(nodes)))]
        kept = [place for place in range(len(nodes)) if all(math.isfinite(answers[place, node]) for node in judges)]
        if lost := [nodes[place] for place in range(len(nodes)) if place not in kept]:
            _LOG.warning("round %d: models of clients %s have no finite loss and do not count", server_round, lost)
        if not judges or not kept:
            raise RoundFailedError(f"round {server_round}: no client could validate; does the app answer evaluation?")
        rows = [[answers[place, node] for node in judges] for place in kept]
        return [replies[place] for place in kept], torch.tensor(rows, dtype=torch.float64)

    def _ask(self, server_round: int, replies: Sequence[Message]) -> dict[tuple[int, int], float]:
        """The loss of model i at node j, by (i, j); what did not come is not there."""
        assert self._grid is not None
        messages = []
        for place, reply in enumerate(replies):
            arrays = next(iter(reply.content.array_records.values()))
            config = ConfigRecord({ROUND: server_round})
            content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
            messages += [
                # The group comes back with the answer: it says whose model was tried.
                Message(content, other.metadata.src_node_id, "evaluate", group_id=str(place))
                for other in replies
            ]
        found = {}
        for answer in self._grid.send_and_receive(messages, timeout=self._time_limit):
            told = {} if answer.has_error() else next(iter(answer.content.metric_records.values()), {})
            if isinstance(loss := told.get(self._eval_loss_key), (int, float)):
                found[int(answer.metadata.group_id), answer.metadata.src_node_id] = float(loss)
        return found

    def _train_loss(self, reply: Message) -> float:
        told = next(iter(reply.content.metric_records.values()), {})
        loss = told.get(self._train_loss_key)
        if not isinstance(loss, (int, float)) or not math.isfinite(loss):
            raise RoundFailedError(
                f"client {reply.metadata.src_node_id} says no finite {self._train_loss_key!r}, by which FedBoosting "
                "weighs; send it as a metric, or use training_loss=False"
            )
        return float(loss)
