"""What a client is asked to do in a round: to train, and to try models on the examples it held out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from leakscope.defence import Hardened
from leakscope.federated.client import Client, Reply
from leakscope.federated.experiment import Experiment
from leakscope.networks import copy_network
from leakscope.types import SharedUpdate, Tensors

# Runs one client in a round; whoever runs clients elsewhere gives another.
CallClient = Callable[[Client, Hardened, Experiment, int], Reply]


@dataclass(frozen=True)
class ClientPart(ABC):
    """One client's part in a round: a value, so that it can be handed to another process.

    Attributes:
        client: who does it; its memory may change.
        network: the global network.
        experiment: how to train.
        round: counts from 0.
    """

    client: Client
    network: Hardened
    experiment: Experiment
    round: int

    @abstractmethod
    def run(self) -> Any:
        """Do it, here and now; raises whatever goes wrong."""


class Runner(ABC):
    """Runs clients' parts, one after another: here, or where they can be ended."""

    @abstractmethod
    def run(self, part: ClientPart) -> Any:
        """What the part comes to; whatever goes wrong with the client is its `Failure`."""


@dataclass(frozen=True)
class TrainingPart(ClientPart):
    """Train, and reply. `call` takes the place of `Client.take_part`."""

    call: CallClient | None = None

    def run(self) -> Reply:
        """The client's reply."""
        if self.call is not None:
            return self.call(self.client, self.network, self.experiment, self.round)
        return self.client.take_part(self.network, self.experiment, round=self.round)


@dataclass(frozen=True)
class TriedModel:
    """A model that clients try: what moves the global one there, and its buffers."""

    update: SharedUpdate
    buffers: Tensors


@dataclass(frozen=True)
class ValidationPart(ClientPart):
    """Tell the losses of `candidates` on the examples held out."""

    candidates: Sequence[TriedModel] = field(default=())

    def run(self) -> list[float]:
        """One loss per candidate."""
        rate = self.experiment.server.lr
        return [
            self.client.validate(preview(self.network, one, rate=rate), self.experiment, round=self.round)
            for one in self.candidates
        ]


@torch.no_grad()
def preview(network: Hardened, candidate: TriedModel, *, rate: float) -> Hardened:
    """The network as one candidate alone would make it: W + Δ, or W − rate · gradient, and its buffers."""
    model = copy_network(network.client)
    parameters, statistics = dict(model.named_parameters()), dict(model.named_buffers())
    factor = 1.0 if candidate.update.kind == "delta" else -rate
    for name, value in candidate.update.tensors.items():
        parameters[name].add_(factor * value.to(parameters[name]))
    for name, value in candidate.buffers.items():
        statistics[name].copy_(value)
    return replace(network, client=model)
