"""The rounds of an audit: the server hands a model out, clients train on it, the server sees what they send.

One round is the usual case. Between rounds an honest server applies the mean update; a malicious one crafts the
model of every round and may look at what it saw before.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from leakscope import rng as random
from leakscope.attack import Attack, CraftContext, Crafted
from leakscope.audits.pooling import pool
from leakscope.client import ClientRun, digest, harden, run_client
from leakscope.defence import Defence, Hardened
from leakscope.errors import UnsuitableError
from leakscope.federated import fedavg
from leakscope.networks import freeze, settle
from leakscope.observation.observe import observe_many
from leakscope.observation.scenario import Scenario
from leakscope.tasks import OutputLoss, Task
from leakscope.types import Batch, LocalTraining, Loss, Observation, SealedUpdate, SharedUpdate


@dataclass(frozen=True)
class Federation:
    """Who takes part in an audit and how: the victims, their training, and what the server is granted.

    Attributes:
        model: the agreed network.
        victims: one private batch a client.
        defence: what the clients have switched on.
        local: how they train; None for one gradient.
        scenario: what the server knows.
        seed: of everything the clients and the server draw.
        task: what the network is for.
        loss: what clients train with, where it is not the task's.
        rounds: rounds to play.
        rate: the server's step along the mean gradient between two rounds.
        pooled: whether only the mean of all clients' updates is seen, as if one client had made it.
    """

    model: nn.Module
    victims: tuple[Batch, ...]
    defence: Defence | None
    local: LocalTraining | None
    scenario: Scenario
    seed: int
    task: Task | None = None
    loss: Loss | None = None
    rounds: int = 1
    rate: float = 0.1
    pooled: bool = False

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.victims[0].inputs.shape[1:])

    def harden_network(self) -> Hardened:
        """The network under the defence; what clients draw for it depends on their data, which no attacker has."""
        secrets = [digest(victim) for victim in self.victims]
        return harden(self.model, self.defence, seed=random.child_seed(self.seed, "harden", *secrets))


@dataclass(frozen=True)
class Round:
    """One round: what every victim did, and what was seen of it; nothing where an update was sealed.

    `behind` holds the examples and the run behind each thing seen: those of one client, or of all of them together.
    """

    runs: tuple[ClientRun, ...]
    seen: tuple[Observation, ...]
    behind: tuple[tuple[Batch, ClientRun], ...] = ()


def play(federation: Federation, attack: Attack) -> list[Round]:
    """Play the rounds of `federation` with the server of `attack`; stops at the first sealed update."""
    hardened = federation.harden_network()
    agreed, played = hardened.server, list[Round]()
    for number in range(federation.rounds):
        history = tuple(one for earlier in played for one in earlier.seen)
        crafted = _craft(federation, attack, agreed, number, history)
        played.append(_play_one(federation, hardened, crafted, number, played))
        updates = [run.update for run in played[-1].runs if isinstance(run.update, SharedUpdate)]
        if len(updates) < len(federation.victims):
            break
        if number + 1 < federation.rounds:
            agreed = _step(agreed, updates, rate=federation.rate)
    return played


def _craft(
    federation: Federation, attack: Attack, agreed: nn.Module, number: int, history: tuple[Observation, ...]
) -> Crafted:
    if not attack.is_malicious:
        return Crafted(agreed)
    shape = federation.input_shape
    context = CraftContext(
        seed=random.child_seed(federation.seed, "server", number),
        input_shape=shape,
        num_classes=settle(freeze(agreed)[0], shape).outputs,
        round=number,
        history=history,
    )
    return attack.craft(agreed, context=context)


def _play_one(
    federation: Federation, hardened: Hardened, crafted: Crafted, number: int, played: Sequence[Round]
) -> Round:
    # Before any client has used the model: a module may remember what it was fed.
    frozen, notes = freeze(crafted.model)
    network = _receive(hardened, crafted.model)
    runs = tuple(
        run_client(
            network,
            victim,
            defence=federation.defence,
            local=federation.local,
            seed=_client_seed(federation.seed, place, number),
            loss=federation.loss,
            task=federation.task,
            held_back=played[-1].runs[place].held_back if played else None,
        )
        for place, victim in enumerate(federation.victims)
    )
    if any(isinstance(run.update, SealedUpdate) for run in runs):
        return Round(runs, ())
    behind = tuple(zip(federation.victims, runs, strict=True))
    behind = (pool(behind),) if federation.pooled else behind
    seen = observe_many(
        frozen,
        [run.update for _, run in behind],
        scenario=federation.scenario,
        truths=[batch for batch, _ in behind],
        loss=federation.loss if hardened.loss is None else OutputLoss(hardened.loss),
        task=federation.task,
        orders=[run.order for _, run in behind],
        notes=notes,
    )
    earlier = [tuple(one.seen[place] for one in played) for place in range(len(seen))]
    return Round(
        runs,
        tuple(replace(one, earlier=before, secret=crafted.secret) for one, before in zip(seen, earlier, strict=True)),
        behind,
    )


def _client_seed(seed: int, place: int, number: int) -> int:
    return random.child_seed(seed, "share", place, *(("round", number) if number else ()))


def _receive(hardened: Hardened, handed_out: nn.Module) -> Hardened:
    """The client's network with what the server handed out; what is private stays the client's own."""
    if hardened.client is hardened.server:
        return Hardened(handed_out, handed_out, hardened.loss, hardened.private)
    values = {**dict(handed_out.named_parameters()), **dict(handed_out.named_buffers())}
    if values.keys() != {**dict(hardened.server.named_parameters()), **dict(hardened.server.named_buffers())}.keys():
        raise UnsuitableError(
            "the server hands out another architecture, but this defence keeps layers of the agreed one at the client, "
            "which do not fit it; audit the attack without the defence"
        )
    client = copy.deepcopy(hardened.client)
    with torch.no_grad():
        for name, value in (*client.named_parameters(), *client.named_buffers()):
            if name in values and name not in hardened.private:
                value.copy_(values[name])
    return Hardened(client, handed_out, hardened.loss, hardened.private)


def _step(model: nn.Module, updates: Sequence[SharedUpdate], *, rate: float) -> nn.Module:
    """The global model after the mean update; buffers stay."""
    mean = fedavg(updates)
    moved = copy.deepcopy(model)
    factor = 1.0 if mean.kind == "delta" else -rate
    with torch.no_grad():
        for name, value in moved.named_parameters():
            if name in mean.tensors:
                value.add_(mean.tensors[name], alpha=factor)
    return moved
