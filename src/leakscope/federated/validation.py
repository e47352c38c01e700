"""Clients try each other's models on the examples they held out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.errors import RoundFailedError, UsageError
from leakscope.federated.aggregation import average_tensors
from leakscope.federated.client import Client, Reply, count_bytes
from leakscope.federated.faults import Failure
from leakscope.federated.parts import Runner, TriedModel, ValidationPart
from leakscope.federated.server import Server
from leakscope.types import SealedUpdate

# Of one loss that a validator sends back.
_LOSS_BYTES = 8


@dataclass(frozen=True)
class CrossValidation:
    """The matrix V of a round, and what it took.

    Attributes:
        losses: [clients, validators] loss of each client's model on each validator's held-out examples.
        replies: the clients of the rows.
        failures: clients that could not validate, or whose models have no finite loss.
        bytes_up: losses that validators sent.
        bytes_down: models that validators received; each has its own already, unless it was mixed with others.
    """

    losses: Tensor
    replies: tuple[Reply, ...]
    failures: tuple[Failure, ...] = ()
    bytes_up: int = 0
    bytes_down: int = 0


def cross_validate(
    server: Server, clients: Sequence[Client], replies: Sequence[Reply], *, round: int, runner: Runner
) -> CrossValidation:
    """Let every client that replied and holds examples out try every reply's model.

    A client that fails at it does not count in this round at all; nor does one whose held-out examples give no model a
    finite loss, or whose model has a loss that is not finite where others' are.
    """
    models = [_validated_model(server, replies, place) for place in range(len(replies))]
    columns, failures = dict[int, list[float]](), list[Failure]()
    for client in _find_validators(server, clients, replies):
        candidates = [model.candidate for model in models]
        found = runner.run(ValidationPart(client, server.network, server.experiment, round, candidates))
        if isinstance(found, Failure):
            failures.append(found)
        else:
            columns[client.number] = found
    # Who holds its own model already need not receive it, unless it comes back mixed with the others'.
    is_mixed = server.experiment.strategy.mixing is not None
    sizes = {reply.client: model.size for reply, model in zip(replies, models, strict=True)}
    down = sum(size for number in columns for owner, size in sizes.items() if is_mixed or owner != number)
    failures += _find_unsound(columns, replies)
    out = {failure.client for failure in failures}
    kept = [place for place, reply in enumerate(replies) if reply.client not in out]
    judges = [column for number, column in columns.items() if number not in out]
    if kept and not judges:
        raise RoundFailedError(f"round {round}: no client could validate; {failures[0].reason}")
    losses = torch.tensor([[column[place] for column in judges] for place in kept], dtype=torch.float64)
    return CrossValidation(
        losses,
        tuple(replies[place] for place in kept),
        tuple(failures),
        bytes_up=_LOSS_BYTES * len(columns) * len(replies),
        bytes_down=down,
    )


def _find_validators(server: Server, clients: Sequence[Client], replies: Sequence[Reply]) -> list[Client]:
    by_number = {client.number: client for client in clients}
    found = [by_number[reply.client] for reply in replies if by_number[reply.client].held_out is not None]
    if not found:
        raise UsageError(
            f"strategy {server.experiment.strategy.name} needs examples that clients hold out, and none of "
            f"{len(replies)} has any; make clients with Client.of"
        )
    return found


def _find_unsound(columns: Mapping[int, Sequence[float]], replies: Sequence[Reply]) -> list[Failure]:
    """Validators to whom no model has a finite loss, then models without one in the eyes of any other validator."""
    blind = {number for number, column in columns.items() if not any(map(math.isfinite, column))}
    failures = [Failure(number, "its held-out examples give no model a finite loss") for number in sorted(blind)]
    judges = [column for number, column in columns.items() if number not in blind]
    for place, reply in enumerate(replies):
        if reply.client not in blind and not all(math.isfinite(column[place]) for column in judges):
            failures.append(Failure(reply.client, "its model has no finite loss on examples that clients held out"))
    return failures


@dataclass(frozen=True)
class _ValidatedModel:
    """One reply's model as the others see it: its own, or mixed with theirs; and its size on the wire."""

    candidate: TriedModel
    size: int


def _validated_model(server: Server, replies: Sequence[Reply], place: int) -> _ValidatedModel:
    mixing, others = server.experiment.strategy.mixing, len(replies) - 1
    own = 1.0 if mixing is None or not others else mixing
    rest = 0.0 if not others else (1.0 - own) / others
    weights = [own if other == place else rest for other in range(len(replies))]
    update = server.experiment.aggregator.combine(replies, weights)
    if mixing is None:
        return _ValidatedModel(TriedModel(update, replies[place].buffers), replies[place].bytes_sent)
    buffers = average_tensors([reply.buffers for reply in replies], weights)
    # A sealed update stays as long as it was, whatever is mixed into it.
    sent = replies[place].update
    size = count_bytes(sent if isinstance(sent, SealedUpdate) else update, buffers)
    return _ValidatedModel(TriedModel(update, buffers), size)
