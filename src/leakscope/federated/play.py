"""One round of a federation: collect replies, check them, weigh them, apply them, test the model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from leakscope.errors import RoundFailedError
from leakscope.federated.client import Client, Reply
from leakscope.federated.evaluation import evaluate
from leakscope.federated.experiment import Experiment
from leakscope.federated.faults import Failure, check_reply, find_odd_ones
from leakscope.federated.memory import ClientMemory
from leakscope.federated.parts import CallClient, Runner, TrainingPart
from leakscope.federated.rounds import seed_globally
from leakscope.federated.runners import open_runner
from leakscope.federated.server import Server
from leakscope.federated.strategy import check_weights_of
from leakscope.federated.validation import cross_validate
from leakscope.rng import child_seed
from leakscope.types import Batch

_REASONS_SHOWN = 3


@dataclass(frozen=True)
class RoundRecord:
    """What one round came to.

    Attributes:
        round: counts from 0.
        accuracy: of the global model on the test examples; the mean over clients where each has a network of its own.
        loss: mean test loss, likewise.
        weights: how much each client that completed the round counted.
        train_losses: what these clients reported.
        failures: clients that took part and did not complete it, with reasons.
        validation: the cross-validation matrix, rows in the order of `weights`; None where there was none.
        bytes_up: what the server received in replies that are sound, and in losses.
        bytes_down: what clients received.
        seconds: how long the round took, evaluation included; the one thing that differs from run to run.
    """

    round: int
    accuracy: float
    loss: float
    weights: dict[int, float]
    train_losses: dict[int, float]
    failures: tuple[Failure, ...] = ()
    validation: tuple[tuple[float, ...], ...] | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Completed:
    """The replies of a round that count, with all that was exchanged to get them.

    Attributes:
        replies: in the order of client numbers.
        failures: clients that do not count.
        validation: losses of the replies' models, where the strategy asked for them.
        bytes_up: what the server received.
        bytes_down: what clients received after the model itself.
    """

    replies: tuple[Reply, ...]
    failures: tuple[Failure, ...] = ()
    validation: Tensor | None = None
    bytes_up: int = 0
    bytes_down: int = 0


def play_round(
    server: Server,
    clients: Sequence[Client],
    test: Batch,
    *,
    round: int,
    time_limit: float | None = None,
    call: CallClient | None = None,
    runner: Runner | None = None,
) -> RoundRecord:
    """One round: those who take part train, what they send is checked, weighed and applied, and the model is tested.

    `time_limit` and `call` are as for `train_federated`; `runner`, where it is given, runs clients in place of what
    `time_limit` asks for, and stays open.

    Raises:
        RoundFailedError: Too few clients completed it; the model is as it was.
    """
    if runner is None:
        with open_runner(time_limit, is_called=call is not None) as own:
            return play_round(server, clients, test, round=round, call=call, runner=own)
    began = time.perf_counter()
    by_number = {client.number: client for client in clients}
    selected = [by_number[number] for number in server.select(list(by_number), round=round)]
    handed_out = server.count_bytes() * len(selected)
    collected = collect(server, selected, round=round, call=call, runner=runner)
    done = complete(server, selected, collected, round=round, runner=runner)
    weights = server.experiment.strategy.weigh(done.replies, done.validation)
    check_weights_of(server.experiment.strategy, weights, done.replies)
    server.apply(done.replies, weights)
    accuracy, loss = measure_model(server, clients, test, round=round)
    return RoundRecord(
        round=round,
        accuracy=accuracy,
        loss=loss,
        weights={reply.client: weight for reply, weight in zip(done.replies, weights, strict=True)},
        train_losses={reply.client: reply.train_loss for reply in done.replies},
        failures=done.failures,
        validation=None if done.validation is None else tuple(map(tuple, done.validation.tolist())),
        bytes_up=done.bytes_up,
        bytes_down=handed_out + done.bytes_down,
        seconds=time.perf_counter() - began,
    )


def collect(
    server: Server, selected: Sequence[Client], *, round: int, call: CallClient | None = None, runner: Runner
) -> Completed:
    """Let clients train, and keep the replies that are sound; whatever goes wrong makes that client fail."""
    answers = [_ask(server, client, runner, round=round, call=call) for client in selected]
    replies = sorted((one for one in answers if isinstance(one, Reply)), key=lambda one: one.client)
    failures = tuple(one for one in answers if isinstance(one, Failure))
    return Completed(tuple(replies), failures, bytes_up=sum(reply.bytes_sent for reply in replies))


def _ask(server: Server, client: Client, runner: Runner, *, round: int, call: CallClient | None) -> Reply | Failure:
    reply = runner.run(TrainingPart(client, server.network, server.experiment, round, call))
    if isinstance(reply, Failure):
        return reply
    try:
        check_reply(reply, server.network, server.experiment, client=client.number, round=round)
        return reply
    except Exception as error:
        return Failure.of(client.number, error)


def complete(
    server: Server, selected: Sequence[Client], collected: Completed, *, round: int, runner: Runner
) -> Completed:
    """What counts of the collected replies, validated where the strategy asks for it.

    Raises:
        RoundFailedError: Fewer replies are left than `min_completed` asks for.
    """
    done = _without(collected, find_odd_ones(collected.replies))
    _check_enough(server.experiment, done, selected=len(selected), round=round)
    if not server.experiment.strategy.needs_validation:
        return done
    found = cross_validate(server, selected, done.replies, round=round, runner=runner)
    done = replace(
        _without(done, found.failures),
        validation=found.losses,
        bytes_up=done.bytes_up + found.bytes_up,
        bytes_down=done.bytes_down + found.bytes_down,
    )
    _check_enough(server.experiment, done, selected=len(selected), round=round)
    return done


def measure_model(server: Server, clients: Sequence[Client], test: Batch, *, round: int) -> tuple[float, float]:
    """Accuracy and loss of the global model; with each client's own values where there are any."""
    experiment = server.experiment
    own = [client.memory for client in clients] if server.network.private else [ClientMemory()]
    with seed_globally(server.model, child_seed(experiment.seed, "test", round)):
        return evaluate(server.model, test, loss=experiment.loss, task=experiment.known_task, memories=own)


def _without(done: Completed, failures: Sequence[Failure]) -> Completed:
    out = {failure.client for failure in failures}
    replies = tuple(reply for reply in done.replies if reply.client not in out)
    every = sorted([*done.failures, *failures], key=lambda one: one.client)
    return replace(done, replies=replies, failures=tuple(every))


def _check_enough(experiment: Experiment, done: Completed, *, selected: int, round: int) -> None:
    needed = experiment.count_needed(selected)
    if len(done.replies) >= needed:
        return
    told = [f"client {failure.client}: {failure.reason}" for failure in done.failures]
    more = f" and {len(told) - _REASONS_SHOWN} more" if len(told) > _REASONS_SHOWN else ""
    raise RoundFailedError(
        f"round {round}: {len(done.replies)} of {selected} clients completed it, at least {needed} must "
        f"(min_completed={experiment.min_completed:g}); {'; '.join(told[:_REASONS_SHOWN])}{more}"
    )
