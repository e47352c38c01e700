"""Federated training from the first round to the last, kept on disk where it is to survive its process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn

from leakscope.defence import Hardened
from leakscope.errors import UsageError
from leakscope.federated.checkpoints import Checkpoints
from leakscope.federated.client import Client
from leakscope.federated.experiment import Experiment
from leakscope.federated.identity import identify
from leakscope.federated.memory import ClientMemory
from leakscope.federated.parts import CallClient
from leakscope.federated.play import RoundRecord, play_round
from leakscope.federated.runners import open_runner
from leakscope.federated.server import Server
from leakscope.types import Batch


@dataclass(frozen=True)
class Training:
    """A finished federated training.

    Attributes:
        model: the global network as clients train it, in eval mode; zeros where a client has what never leaves it.
        network: the same with both sides of the defence.
        rounds: one record per round.
        clients: the participants with what they kept.
        experiment: how it was trained.
    """

    model: nn.Module
    network: Hardened
    rounds: tuple[RoundRecord, ...]
    clients: tuple[Client, ...]
    experiment: Experiment

    def public_state(self) -> dict[str, Tensor]:
        """The state dict of the global model without what never leaves a client: what may be handed on."""
        held = self.model.state_dict()
        return {name: value.detach() for name, value in held.items() if name not in self.network.private}

    @property
    def accuracies(self) -> list[float]:
        """Test accuracy after every round."""
        return [record.accuracy for record in self.rounds]

    @property
    def losses(self) -> list[float]:
        """Test loss after every round."""
        return [record.loss for record in self.rounds]

    @property
    def bytes_sent(self) -> int:
        """All that clients and server sent each other."""
        return sum(record.bytes_up + record.bytes_down for record in self.rounds)


def train_federated(
    model: nn.Module,
    clients: Sequence[Client],
    test: Batch,
    experiment: Experiment,
    *,
    directory: Path | str | None = None,
    watch: Callable[[RoundRecord], None] | None = None,
    time_limit: float | None = None,
    call: CallClient | None = None,
) -> Training:
    """Train a copy of `model` on the clients' examples; the caller's model, clients and random state stay as they were.

    The result is the same to the bit for the same experiment, whatever order clients finish in, and whether or not the
    training was interrupted and continued.

    Args:
        model: The network without the defence; its weights are where training starts.
        clients: The participants, each with a number of its own.
        test: Examples that accuracy and loss are taken on after every round.
        experiment: How to train.
        directory: Folder that keeps every finished round; a training that was stopped continues from there.
        watch: Called with the record of every round that is played now, once it is kept.
        time_limit: Seconds of the server's clock that a client may take to train, and to validate. Clients then run in
            a process of their own, which is ended where one is late or hangs; networks, losses and clients must be of a
            kind that can be pickled. None applies no limit: a client that hangs, hangs the training.
        call: What runs one client, in place of `Client.take_part`; what it raises makes that client fail. It runs in
            this process, and cannot be ended: after `time_limit` it is left to itself, and does not count.

    Raises:
        RoundFailedError: Fewer clients than `min_completed` completed a round; the message names them with reasons.

    Example:
        >>> import torch
        >>> from leakscope.types import LocalTraining
        >>> inputs = torch.tensor([[0.0], [1.0]]).repeat(20, 1)
        >>> batch = Batch(inputs, inputs[:, 0].long())
        >>> clients = [Client.of(number, batch) for number in range(2)]
        >>> experiment = Experiment(rounds=5, local=LocalTraining(lr=0.5, epochs=4, batch_size=8))
        >>> train_federated(nn.Linear(1, 2), clients, batch, experiment).accuracies[-1]
        1.0
    """
    participants = _start_clients(model, clients, experiment)
    server = Server(experiment.harden(model), experiment)
    kept = None if directory is None else Checkpoints(directory, identify(model, participants, test, experiment))
    records = [] if kept is None else _continue(kept, server, participants)
    with open_runner(time_limit, is_called=call is not None) as runner:
        for number in range(len(records), experiment.rounds):
            records.append(play_round(server, participants, test, round=number, call=call, runner=runner))
            if kept is not None:
                kept.save(server, participants, records[-1])
            if watch is not None:
                watch(records[-1])
    return Training(server.model.eval(), server.network, tuple(records), tuple(participants), experiment)


def _continue(kept: Checkpoints, server: Server, clients: Sequence[Client]) -> list[RoundRecord]:
    records = kept.restore(server, clients)
    if len(records) > server.experiment.rounds:
        raise UsageError(
            f"{len(records)} rounds of this training are finished already, {server.experiment.rounds} are asked for; "
            "choose another folder to stop earlier"
        )
    return records


def _start_clients(model: nn.Module, clients: Sequence[Client], experiment: Experiment) -> list[Client]:
    """Copies of the clients with empty memories, in order."""
    numbers = [client.number for client in clients]
    if not numbers or len(set(numbers)) < len(numbers):
        raise UsageError(f"train_federated needs at least one client, each with its own number, got {numbers}")
    started = [replace(client, memory=ClientMemory()) for client in sorted(clients, key=lambda one: one.number)]
    for client in started:
        client.start(model, experiment)
    return started
