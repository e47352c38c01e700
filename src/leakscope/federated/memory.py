"""What a client keeps from round to round: what it held back, and the parameters that never leave it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from leakscope.client import ClientRun, harden
from leakscope.defence import Defence, Hardened
from leakscope.rng import child_seed
from leakscope.types import Tensors


@dataclass
class ClientMemory:
    """One client's own part of the training.

    Attributes:
        held_back: what a defence with feedback held back in the last round.
        private: parameters and buffers that never leave the client, as they are now.
        lr: rate of the client's own steps on them, where clients share gradients.
        momentum: of these steps.
    """

    held_back: Tensors = field(default_factory=dict)
    private: dict[str, Tensor] = field(default_factory=dict)
    lr: float = 0.0
    momentum: float = 0.0
    _velocity: dict[str, Tensor] = field(default_factory=dict)

    @torch.no_grad()
    def enter(self, model: nn.Module) -> None:
        """Put this client's own values into the network that all clients take turns on."""
        if self.private:
            places = _state(model)
            for name, value in self.private.items():
                places[name].copy_(value)

    def learn(self, run: ClientRun, *, kind: Literal["gradient", "delta"]) -> None:
        """Keep what the step held back, and move the client's own parameters as the server moves the shared ones."""
        self.held_back = run.held_back
        for name, value in run.private.items():
            if kind == "gradient":
                # The rule of torch.optim.SGD, which the server follows: v ← momentum · v + g, W ← W − lr · v.
                old = self._velocity.get(name)
                self._velocity[name] = value.clone() if old is None else self.momentum * old + value
                self.private[name] = self.private[name] - self.lr * self._velocity[name]
            else:
                self.private[name] = self.private[name] + value

    def state(self) -> dict[str, Tensor]:
        """All of it as named tensors: what a file keeps, or a client that is started again for every round."""
        groups = {"held_back": self.held_back, "private": self.private, "velocity": self._velocity}
        return {f"{group}/{name}": value for group, held in groups.items() for name, value in held.items()}

    def restore(self, state: Tensors) -> None:
        """Take over what `state` gave."""
        groups: dict[str, dict[str, Tensor]] = {"held_back": {}, "private": {}, "velocity": {}}
        for full, value in state.items():
            group, _, name = full.partition("/")
            groups[group][name] = value.clone()
        self.held_back, self.private, self._velocity = groups["held_back"], groups["private"], groups["velocity"]


def start_memories(
    model: nn.Module,
    network: Hardened,
    *,
    defence: Defence | None,
    clients: int,
    seed: int,
    lr: float,
    momentum: float,
) -> list[ClientMemory]:
    """One memory per client; private parameters start from a seed of each client's own, those of the first from `seed`.

    `model` is the network before the defence, `network` what the defence made of it.
    """
    if not network.private:
        return [ClientMemory() for _ in range(clients)]
    drawn = (draw_private(model, network, defence=defence, client=client, seed=seed) for client in range(clients))
    return [ClientMemory(private=private, lr=lr, momentum=momentum) for private in drawn]


def draw_private(
    model: nn.Module, network: Hardened, *, defence: Defence | None, client: int, seed: int
) -> dict[str, Tensor]:
    """What one client starts with of the parameters and buffers that never leave it; arguments as above."""
    if not network.private:
        return {}
    own = network
    if client:
        own = harden(copy.deepcopy(model), defence, seed=child_seed(seed, "private", client))
    state = _state(own.client)
    return {name: state[name].detach().clone() for name in sorted(network.private) if name in state}


def _state(model: nn.Module) -> Mapping[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
