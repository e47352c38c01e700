"""A client's training run by leakscope inside Flower: what defences need that act before an update is finished."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from flwr.app import ArrayRecord, Context, Message
from torch import Tensor, nn

from leakscope.defence import Defence, Hardened
from leakscope.federated.client import Client, Reply
from leakscope.federated.experiment import Experiment
from leakscope.federated.memory import ClientMemory
from leakscope.flower.records import (
    PARTITION,
    ROUND,
    load_arrays,
    read_arrays,
    read_number,
    to_record,
    to_tensors,
)
from leakscope.registry import as_defence
from leakscope.tasks import Task
from leakscope.types import Batch, LocalTraining, Loss

# Where a client keeps what it held back and what never leaves it: Flower holds it in the client's own Context.
MEMORY = "leakscope.memory"


@dataclass(frozen=True)
class OwnTraining:
    """How a client trains, in place of the app's own training function.

    Attributes:
        model: builds the network as it is without a defence; weights come from the server.
        data: the client's examples of a round, from its Context; `node_config["partition-id"]` says which it is.
        local: local training; None shares one gradient, which the server's strategy must then expect.
        loss: what clients train with unless the defence brings its own; by default that of the task.
        task: what the network is for, by default classification.
        freeze_batch_norm: keep batch-norm layers on their stored statistics; defences that look at single examples need
            it where there are any.
    """

    model: Callable[[], nn.Module]
    data: Callable[[Context], Batch]
    local: LocalTraining | None = None
    loss: Loss | None = None
    task: Task | None = None
    freeze_batch_norm: bool = False

    def experiment(self, defence: Defence, *, seed: int) -> Experiment:
        """The same training as leakscope's own rounds know it."""
        return Experiment(
            rounds=1,
            local=self.local,
            defence=defence,
            loss=self.loss,
            task=self.task,
            seed=seed,
            freeze_batch_norm=self.freeze_batch_norm,
        )

    def client(self, context: Context) -> Client:
        """The client of a Context."""
        return Client(client_number(context), self.data(context))


def enter_client(
    client: Client, context: Context, *, model: nn.Module, experiment: Experiment, received: dict[str, Tensor]
) -> tuple[Client, Hardened]:
    """A client with what it kept in its Context, and its network with the weights that were handed out."""
    own = replace(client, memory=ClientMemory())
    network = own.start(model, experiment)
    if (kept := context.state.array_records.get(MEMORY)) is not None:
        own.memory.restore(to_tensors(kept))
    load_arrays(network.client, received, private=network.private)
    return own, network


def take_part(client: Client, message: Message, context: Context, *, model: nn.Module, experiment: Experiment) -> Reply:
    """Train on what a message hands out, as `leakscope.federated.Client` does in a round, and keep the memory."""
    own, network = enter_client(
        client, context, model=model, experiment=experiment, received=read_arrays(message).tensors
    )
    reply = own.take_part(network, experiment, round=round_of(message) - 1)
    context.state[MEMORY] = to_record(own.memory.state())
    return reply


def client_number(context: Context) -> int:
    """Which client this is: its partition in a simulation, where nodes have new numbers each time, else its node."""
    return int(context.node_config.get(PARTITION, context.node_id))


def round_of(message: Message) -> int:
    """The server's round, from 1; Flower's own strategies tell it, and 1 stands for those that do not."""
    return read_number(message.content.config_records, ROUND) or 1


def initial_arrays(model: nn.Module, defence: Defence | str | None = None, *, seed: int = 0) -> ArrayRecord:
    """What the server hands out in the first round: the network under `defence`, without what never leaves a client."""
    chosen = None if defence is None else as_defence(defence)
    network = Experiment(rounds=1, defence=chosen, seed=seed).harden(model)
    return to_record({n: v for n, v in network.client.state_dict().items() if n not in network.private})
