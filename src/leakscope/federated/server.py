"""The server of a federation: the global model, who takes part, and what a round's updates make of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from leakscope import wire
from leakscope.defence import Hardened
from leakscope.errors import BadInputError, RoundFailedError
from leakscope.federated.aggregation import average_tensors
from leakscope.federated.client import Reply
from leakscope.federated.experiment import Experiment
from leakscope.federated.faults import check_mean
from leakscope.networks import copy_network
from leakscope.rng import generator
from leakscope.steps.local import Memory
from leakscope.types import Tensors


@dataclass
class Server:
    """The global model and what the server's optimiser remembers.

    Attributes:
        network: the network under the defence; the global weights are in `.client`, whose private entries are zeros.
        experiment: how it is trained.
        memory: of the server's optimiser.
    """

    network: Hardened
    experiment: Experiment
    memory: Memory = field(default_factory=Memory)

    def __post_init__(self) -> None:
        # Hardened from the experiment's seed, it would hold the first client's key and lock layers.
        self.network = without_private(self.network)

    @property
    def model(self) -> nn.Module:
        """The global model, in the form in which clients train it."""
        return self.network.client

    def select(self, clients: Sequence[int], *, round: int) -> list[int]:
        """Numbers of the clients that take part in a round, in order; they follow from the seed and the round alone."""
        ordered = sorted(clients)
        drawn = torch.randperm(len(ordered), generator=generator(self.experiment.seed, "select", round))
        return sorted(ordered[place] for place in drawn[: self.experiment.count_selected(len(ordered))].tolist())

    @torch.no_grad()
    def apply(self, replies: Sequence[Reply], weights: Sequence[float]) -> None:
        """Move the model by what the replies come to under these weights; buffers become their weighted mean.

        Raises:
            RoundFailedError: What the aggregator opened cannot be applied; the model is as it was.
        """
        combined = self.experiment.aggregator.combine(replies, weights)
        try:
            check_mean(combined, self.network, self.experiment)
        except BadInputError as error:
            raise RoundFailedError(f"the combined update cannot be applied: {error}") from error
        parameters = dict(self.model.named_parameters())
        moved, memory = self.experiment.server.step(parameters, combined, memory=self.memory)
        if not all(bool(torch.isfinite(value).all()) for value in moved.values()):
            raise RoundFailedError("the server's step leads to NaN or Inf; lower the server's rate")
        for name, value in moved.items():
            parameters[name].copy_(value)
        self.memory = memory
        buffers = dict(self.model.named_buffers())
        for name, value in average_tensors([reply.buffers for reply in replies], weights).items():
            buffers[name].copy_(value)

    def public_state(self) -> dict[str, Tensor]:
        """Parameters and buffers that clients receive."""
        return {name: value.detach() for name, value in self._held().items() if name not in self.network.private}

    @torch.no_grad()
    def load(self, state: Tensors) -> None:
        """Take over what `public_state` gave."""
        held = self._held()
        for name, value in state.items():
            held[name].copy_(value)

    def count_bytes(self) -> int:
        """Size on the wire of the model as one client receives it."""
        return len(wire.encode(self.public_state()))

    def _held(self) -> dict[str, Tensor]:
        return {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}


@torch.no_grad()
def without_private(network: Hardened) -> Hardened:
    """The network with zeros where a client has what never leaves it; on a copy, where there is any of that."""
    if not network.private:
        return network
    model = copy_network(network.client)
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if name in network.private:
            value.zero_()
    return replace(network, client=model)
