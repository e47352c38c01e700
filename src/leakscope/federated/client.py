"""A client of a federation: it trains on its own examples, and answers what a model comes to on those it held out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
from torch import nn

from leakscope import wire
from leakscope.client import ClientRun, run_client
from leakscope.defence import Hardened
from leakscope.errors import BadInputError, UsageError
from leakscope.federated.evaluation import EVALUATION_CHUNK, evaluate
from leakscope.federated.experiment import Experiment
from leakscope.federated.memory import ClientMemory, draw_private
from leakscope.federated.poison import Poison
from leakscope.federated.rounds import batch_norms, draw, seed_globally, set_train_mode
from leakscope.networks import copy_network
from leakscope.rng import child_seed, generator
from leakscope.tensors import all_finite, detach
from leakscope.types import Batch, SealedUpdate, SharedUpdate, Tensors

HELD_OUT = 0.1


@dataclass(frozen=True)
class Reply:
    """What a client sends back in a round.

    Attributes:
        client: its number.
        round: the round it answers.
        update: what it trained, in the clear or sealed.
        num_examples: how many examples it trained on.
        train_loss: mean loss on them; after local training that of its own model, else that of the model it received.
        buffers: running statistics of batch-norm layers as its data make them, in the clear.
        seconds: how long it took.
        bytes_sent: size of update and buffers on the wire.
    """

    client: int
    round: int
    update: SharedUpdate | SealedUpdate
    num_examples: int
    train_loss: float
    buffers: Tensors = field(default_factory=dict)
    seconds: float = 0.0
    bytes_sent: int = 0


@dataclass
class Client:
    """One participant.

    Attributes:
        number: its place among the clients; with the seed and the round it decides all that it draws.
        train: what it trains on.
        held_out: what it tries models on; None where it has nothing to spare.
        memory: what it keeps from round to round.
        poison: what it does against the others, in experiments.
    """

    number: int
    train: Batch
    held_out: Batch | None = None
    memory: ClientMemory = field(default_factory=ClientMemory)
    poison: Poison | None = None

    @classmethod
    def of(cls, number: int, batch: Batch, *, held_out: float = HELD_OUT, poison: Poison | None = None) -> Client:
        """A client that keeps the last `held_out` of its examples for validation; one example alone is trained on."""
        if not 0 <= held_out < 1:
            raise UsageError(f"held_out must be a share from 0 to below 1, got {held_out}")
        kept = len(batch) - min(len(batch) - 1, int(held_out * len(batch)))
        if kept == len(batch):
            return cls(number, batch, poison=poison)
        return cls(number, _rows(batch, slice(kept)), _rows(batch, slice(kept, None)), poison=poison)

    def start(self, model: nn.Module, experiment: Experiment) -> Hardened:
        """Draw what never leaves this client, and return the network that clients train; `model` is the undefended one.

        Its weights are those of `model`: who trains it later loads the global ones.
        """
        network = experiment.harden(model)
        defence, seed = experiment.defence, experiment.seed
        private = draw_private(model, network, defence=defence, client=self.number, seed=seed)
        server = experiment.server
        self.memory = ClientMemory(private=private, lr=server.lr, momentum=server.momentum)
        return network

    def examples(self, experiment: Experiment, *, round: int) -> Batch:
        """What it trains on in a round: all it has, or as many as one gradient of FedSGD is of."""
        train = self.train if self.poison is None else self.poison.spoil_data(self.train)
        if experiment.batch_size is None:
            return train
        rng = generator(experiment.seed, "draw", round, self.number)
        return draw(train, torch.arange(len(train)), batch_size=experiment.batch_size, rng=rng)

    def take_part(self, model: nn.Module | Hardened, experiment: Experiment, *, round: int) -> Reply:
        """Train on `model` and reply; nothing of the caller's changes, but this client's own memory does.

        All randomness follows from the experiment's seed, the round, this client's number and its examples.

        Args:
            model: The global network; where the defence changes networks or keeps something private, what
                `Experiment.harden` returned, with the global weights in `.client`.
            experiment: How to train.
            round: Counts from 0.
        """
        began = time.perf_counter()
        given = model if isinstance(model, Hardened) else Hardened(model, model)
        network = self._prepare(given, experiment)
        batch = self.examples(experiment, round=round)
        run = run_client(
            Hardened(network, given.server, given.loss, given.private),
            batch,
            defence=experiment.defence,
            local=experiment.local,
            seed=child_seed(experiment.seed, "round", round, self.number),
            loss=experiment.loss,
            task=experiment.task,
            held_back=self.memory.held_back,
        )
        update = run.update
        if isinstance(update, SharedUpdate):
            update = update if self.poison is None else self.poison.spoil_update(update)
            _move(network, update, run.private)
        with self._own_draws(network, experiment, round=round):
            buffers = _refresh_statistics(network, batch, run)
        buffers = {name: value for name, value in buffers.items() if name not in given.private}
        train_loss = self._measure(network, batch, experiment, round=round)
        sent = update
        if isinstance(update, SharedUpdate):
            sent = experiment.aggregator.send(update, client=self.number, round=round)
        # Last: a client that fails on the way must not have learnt from a round that it takes no part in.
        self._remember(run, experiment)
        return Reply(
            client=self.number,
            round=round,
            update=sent,
            num_examples=len(batch),
            train_loss=train_loss,
            buffers=buffers,
            seconds=time.perf_counter() - began,
            bytes_sent=count_bytes(sent, buffers),
        )

    def validate(self, model: nn.Module | Hardened, experiment: Experiment, *, round: int) -> float:
        """Mean loss of `model` on the examples held out; a client with a network of its own puts its own values in."""
        if self.held_out is None:
            raise UsageError(f"client {self.number} holds no examples out; make it with Client.of, or give held_out")
        given = model if isinstance(model, Hardened) else Hardened(model, model)
        held_out = self.held_out if self.poison is None else self.poison.spoil_data(self.held_out)
        return self._measure(self._prepare(given, experiment), held_out, experiment, round=round)

    def _prepare(self, given: Hardened, experiment: Experiment) -> nn.Module:
        """A copy in train mode with this client's own values."""
        network = copy_network(given.client)
        self.memory.enter(network)
        set_train_mode(network, freeze_batch_norm=experiment.freeze_batch_norm)
        return network

    def _measure(self, network: nn.Module, batch: Batch, experiment: Experiment, *, round: int) -> float:
        task = experiment.known_task
        with self._own_draws(network, experiment, round=round):
            return evaluate(network, batch, loss=experiment.loss, task=task, memories=[ClientMemory()])[1]

    def _own_draws(self, network: nn.Module, experiment: Experiment, *, round: int) -> AbstractContextManager[None]:
        """Networks that draw outside of training, too (dropout, a bottleneck), draw the same in the same round."""
        return seed_globally(network, child_seed(experiment.seed, "measure", round, self.number))

    def _remember(self, run: ClientRun, experiment: Experiment) -> None:
        # A step that went wrong is not learnt: what stays with the client could never recover from it.
        if all_finite(run.private):
            self.memory.learn(run, kind=experiment.kind)


@torch.no_grad()
def _move(network: nn.Module, update: SharedUpdate, private: Tensors) -> None:
    """Bring a client's own copy to where local training left it; a gradient leaves it where it was."""
    if update.kind == "delta":
        parameters = dict(network.named_parameters())
        for name, change in {**update.tensors, **private}.items():
            if name in parameters:
                parameters[name].add_(change.to(parameters[name]))


@torch.no_grad()
def _refresh_statistics(network: nn.Module, batch: Batch, run: ClientRun) -> dict[str, torch.Tensor]:
    """Let batch norms in train mode see the steps of the last pass; returns their buffers, by name."""
    learning = [module for module in batch_norms(network) if module.training]
    if not learning:
        return {}
    for positions in _last_pass(run.order, len(batch)):
        for start in range(0, len(positions), EVALUATION_CHUNK):
            rows = list(positions[start : start + EVALUATION_CHUNK])
            if len(rows) > 1:
                network(batch.inputs[rows])
    owners = {id(value) for module in learning for value in module.buffers()}
    return detach({name: value for name, value in network.named_buffers() if id(value) in owners})


def _last_pass(order: Sequence[tuple[int, ...]], examples: int) -> list[tuple[int, ...]]:
    """The last steps that together saw as many examples as there are."""
    found: list[tuple[int, ...]] = []
    seen = 0
    for positions in reversed(order):
        if seen >= examples:
            break
        found.append(positions)
        seen += len(positions)
    return found[::-1]


def count_bytes(update: SharedUpdate | SealedUpdate, buffers: Tensors) -> int:
    """Size on the wire of an update and the buffers beside it."""
    statistics = len(wire.encode(buffers)) if buffers else 0
    if isinstance(update, SealedUpdate):
        return len(update.payload) + statistics
    try:
        return len(wire.encode(update.tensors)) + statistics
    except BadInputError:
        # Of a dtype that has no code: as many bytes as it takes in memory.
        return sum(value.numel() * value.element_size() for value in update.tensors.values()) + statistics


def _rows(batch: Batch, rows: slice) -> Batch:
    return Batch(batch.inputs[rows], batch.targets[rows], batch.bounds)
