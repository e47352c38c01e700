"""The clients of an experiment as a Flower app: each does what `leakscope.federated.Client` does in a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from leakscope.defence import Hardened
from leakscope.errors import UsageError
from leakscope.federated.client import Client, Reply
from leakscope.federated.evaluation import evaluate
from leakscope.federated.experiment import Experiment
from leakscope.federated.rounds import seed_globally
from leakscope.flower.own_training import enter_client, round_of, take_part
from leakscope.flower.records import NUM_EXAMPLES, read_arrays, to_record
from leakscope.rng import child_seed
from leakscope.types import Batch, SealedUpdate, SharedUpdate

ARRAYS, METRICS = "arrays", "metrics"
# What the server asks besides training: who a client is, a model's loss on what it held out, and its test.
WHO, VALIDATE, TEST = "query.who", "evaluate.validate", "evaluate.test"


def client_app(
    model: nn.Module,
    client_of: Callable[[Context], Client],
    experiment: Experiment,
    *,
    test: Batch | None = None,
    mods: Sequence[Any] = (),
) -> ClientApp:
    """The client's side of an experiment.

    Args:
        model: The network without the defence.
        client_of: The client that a Context stands for; its number must be its own.
        experiment: How to train; the server's must be the same. Defences that act as mods are left out of it.
        test: Examples that the model is tested on with what never leaves the client, where a defence keeps something.
        mods: Client mods, the first outermost.
    """
    if experiment.aggregator.name != "plain":
        raise UsageError(
            f"the server of an experiment opens what it combines, got the aggregator {experiment.aggregator.name!r}; "
            "on Flower, seal with seal_mod at the clients and SealedStrategy at the server, which opens nothing"
        )
    side = _ClientSide(model, client_of, experiment, test)
    app = ClientApp(mods=list(mods))
    app.query("who")(side.who)
    app.train()(side.train)
    app.evaluate("validate")(side.validate)
    app.evaluate("test")(side.test_model)
    return app


@dataclass(frozen=True)
class _ClientSide:
    """What a client answers to each kind of message."""

    model: nn.Module
    client_of: Callable[[Context], Client]
    experiment: Experiment
    test: Batch | None

    def who(self, message: Message, context: Context) -> Message:
        client = self.client_of(context)
        return _say(message, {"client": client.number, "holds-out": int(client.held_out is not None)})

    def train(self, message: Message, context: Context) -> Message:
        client = self.client_of(context)
        return _answer(message, take_part(client, message, context, model=self.model, experiment=self.experiment))

    def validate(self, message: Message, context: Context) -> Message:
        client, network = self._enter(message, context)
        return _say(message, {"loss": client.validate(network, self.experiment, round=round_of(message) - 1)})

    def test_model(self, message: Message, context: Context) -> Message:
        if self.test is None:
            raise UsageError("this client has no test examples; give client_app(test=…)")
        client, network = self._enter(message, context)
        plan = self.experiment
        with seed_globally(network.client, child_seed(plan.seed, "test", round_of(message) - 1)):
            accuracy, loss = evaluate(
                network.client, self.test, loss=plan.loss, task=plan.known_task, memories=[client.memory]
            )
        return _say(message, {"accuracy": accuracy, "loss": loss})

    def _enter(self, message: Message, context: Context) -> tuple[Client, Hardened]:
        received = read_arrays(message).tensors
        return enter_client(
            self.client_of(context), context, model=self.model, experiment=self.experiment, received=received
        )


def _say(message: Message, numbers: dict[str, float]) -> Message:
    return Message(RecordDict({METRICS: MetricRecord({NUM_EXAMPLES: 1, **numbers})}), reply_to=message)


def _answer(message: Message, reply: Reply) -> Message:
    """A reply as arrays and numbers: the change itself, which no rounding of weights touches."""
    if isinstance(reply.update, SealedUpdate):
        raise UsageError(
            f"the update is sealed by {reply.update.scheme!r}, and an experiment's server reads arrays; use seal_mod"
        )
    numbers = {
        NUM_EXAMPLES: reply.num_examples,
        "client": reply.client,
        "round": reply.round,
        "train_loss": reply.train_loss,
        "seconds": reply.seconds,
        "bytes-sent": reply.bytes_sent,
    }
    arrays = to_record({**reply.update.tensors, **reply.buffers})
    return Message(RecordDict({ARRAYS: arrays, METRICS: MetricRecord(numbers)}), reply_to=message)


def read_reply(message: Message, *, kind: str, buffers: frozenset[str]) -> Reply:
    """The reply that `_answer` wrote; what is wrong with it is found by whoever checks replies."""
    arrays = read_arrays(message).tensors
    told: dict[str, Any] = dict(message.content.metric_records[METRICS])
    return Reply(
        client=int(told["client"]),
        round=int(told["round"]),
        update=SharedUpdate(
            "gradient" if kind == "gradient" else "delta", {n: v for n, v in arrays.items() if n not in buffers}
        ),
        num_examples=int(told[NUM_EXAMPLES]),
        train_loss=float(told["train_loss"]),
        buffers={name: value for name, value in arrays.items() if name in buffers},
        seconds=float(told["seconds"]),
        bytes_sent=int(told["bytes-sent"]),
    )
