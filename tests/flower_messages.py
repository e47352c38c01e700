"""Messages and clients of Flower as a test needs them, without a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity
from torch import Tensor, nn

from leakscope.federated import Client, Experiment
from leakscope.flower.own_training import take_part
from leakscope.flower.records import read_arrays, to_record


def training_message(arrays: ArrayRecord, *, turn: int = 1, node: int = 7, kind: str = "train") -> Message:
    """What a server sends to one client."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": turn})})
    return Message(content, dst_node_id=node, message_type=kind)


def context_of(*, partition: int | None = 0, node: int = 7) -> Context:
    """A client's own Context."""
    config: dict[str, Any] = {} if partition is None else {"partition-id": partition, "num-partitions": 2}
    return Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})


def answer(message: Message, arrays: ArrayRecord, *, examples: int = 4, **metrics: float) -> Message:
    """A client's reply."""
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": examples, **metrics})})
    return Message(content, reply_to=message)


def client_that_adds(change: dict[str, Tensor]) -> Callable[[Message, Context], Message]:
    """An app whose training adds `change` to the weights, whatever they are."""

    def train(message: Message, context: Context) -> Message:
        before = message.content.array_records["arrays"].to_torch_state_dict()
        after = {name: value + change[name] if name in change else value for name, value in before.items()}
        return answer(message, ArrayRecord(after))

    return train


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """The weights of a network as they are handed out."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def sent_tensors(reply: Message) -> dict[str, Tensor]:
    """The arrays of a reply."""
    return dict(reply.content.array_records["arrays"].to_torch_state_dict())


def random_change(model: nn.Module, *, seed: int = 0, scale: float = 0.1) -> dict[str, Tensor]:
    """A change of every parameter."""
    rng = torch.Generator().manual_seed(seed)
    return {
        name: scale * torch.randn(value.shape, generator=rng, dtype=value.dtype)
        for name, value in model.named_parameters()
    }


def weights_app(model: nn.Module, people: Sequence[Client], plan: Experiment, mods: Sequence[Any]) -> Any:
    """An app as users have it, weights in and weights out, that trains as leakscope's own clients do.

    `heard` of it has the names of the arrays that came in each message to evaluate.
    """
    app: Any = ClientApp(mods=list(mods))
    app.heard = []

    @app.train()
    def train(message: Message, context: Context) -> Message:
        before = read_arrays(message).tensors
        client = people[int(context.node_config["partition-id"])]
        reply: Any = take_part(client, message, context, model=model, experiment=plan)
        after = {name: value + reply.update.tensors.get(name, 0) for name, value in before.items()} | reply.buffers
        return answer(message, to_record(after), examples=reply.num_examples, train_loss=reply.train_loss)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        app.heard.append(set(read_arrays(message).tensors))
        metrics = MetricRecord({"num-examples": 1, "eval_loss": 1.0})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


class DirectGrid:
    """A grid that calls the client app in this process: what the simulation engine does, without Ray.

    Nodes have other numbers than their partitions and answer in reverse order. `broken` nodes answer nothing.
    """

    def __init__(self, app: Any, clients: int, *, broken: tuple[int, ...] = ()) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.app, self.broken = app, broken
        self.contexts = {
            1000 + 7 * place: context_of(partition=place, node=1000 + 7 * place) for place in range(clients)
        }
        self.kinds: list[str] = []

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        replies = []
        for message in messages:
            self.kinds.append(message.metadata.message_type)
            node = message.metadata.dst_node_id
            if self.contexts[node].node_config["partition-id"] in self.broken and "train" in self.kinds[-1]:
                continue
            try:
                replies.append(self.app(message, self.contexts[node]))
            except Exception as error:
                replies.append(Message(Error(2, str(error)), reply_to=message))
        return replies[::-1]
