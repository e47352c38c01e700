"""Train a network federatedly under a defence, and measure what it still learns."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

import torch
from torch import nn

from leakscope.client import ClientStep, harden
from leakscope.defence import Defence, Hardened
from leakscope.errors import UsageError
from leakscope.federated.evaluation import evaluate
from leakscope.federated.memory import ClientMemory, start_memories
from leakscope.federated.rounds import (
    Meter,
    batch_norms,
    client_update,
    deal,
    draw,
    refresh_statistics,
    seed_globally,
    server_step,
    set_train_mode,
)
from leakscope.federated.utility import StepRatio, Utility, wilson_of_share
from leakscope.rng import generator
from leakscope.tasks import Classification, Task
from leakscope.types import Batch, LocalTraining, Loss

MOMENTUM = 0.9
# Of steps with and without a defence, for the ratio of their times.
TIMED_PAIRS = 11
# Of a client that shares its change and is told no more: passes over a round's examples in so many steps.
LOCAL_STEPS = 4
Share = Literal["gradient", "delta"]


@dataclass(frozen=True)
class _Plan:
    """The arguments of `measure_utility` that say how to train."""

    step: ClientStep
    clients: int
    rounds: int
    batch_size: int
    lr: float
    seed: int
    freeze_batch_norm: bool
    # The step without its seal, where the defence seals.
    inside: ClientStep | None = None


def measure_utility(
    model: nn.Module,
    train: Batch,
    test: Batch,
    *,
    defence: Defence | None = None,
    clients: int = 4,
    rounds: int = 150,
    batch_size: int = 32,
    lr: float = 0.1,
    seed: int = 0,
    loss: Loss | None = None,
    task: Task | None = None,
    freeze_batch_norm: bool = False,
    share: Share = "gradient",
    local: LocalTraining | None = None,
    timed: bool = True,
) -> Utility:
    """Train a copy of `model` with every client under `defence`, then test it.

    `train` is dealt at random into one shard per client. Each round every client draws a mini-batch from its shard
    without replacement and computes its update as in `leakscope.client.run_client`. With `share="gradient"` the server
    averages the gradients by batch size and takes one SGD step with momentum 0.9; with `share="delta"` every client
    trains on its mini-batch as `local` says, and the server adds the average change to the model (FedAvg). All
    randomness follows from `seed`; the caller's model and global random state stay as they were.

    Parameters that never leave a client are trained by that client, with the server's rule and rate, and kept from
    round to round; every client starts with its own, and the accuracy is the mean over all clients' networks. Other
    parameters that a defence does not share keep their first value.

    The copy trains in train mode. After each round a forward pass over the clients' own
    mini-batches refreshes the running statistics of batch-norm layers. Defences that look at one
    example at a time need `freeze_batch_norm`, which leaves those layers in eval mode.

    Args:
        model: The network as it is without the defence.
        train: Examples of all clients together.
        test: Examples that accuracy and final loss are taken on.
        defence: What the clients do against leakage. What one seals is taken for what it opens to (`Defence.unsealed`),
            from which sums of sealed updates differ by rounding; its time and its bytes are those of the sealed update.
        clients: Number of clients; all take part in every round.
        rounds: Server steps.
        batch_size: Examples per client and round, at most its shard.
        lr: Learning rate: the server's, or that of the usual local training.
        seed: Decides shards, mini-batches and the randomness of clients and defence.
        loss: What clients train with unless the defence brings its own, and what `final_loss` is measured with; by
            default the task's.
        task: How answers are told right from wrong; by default classification.
        freeze_batch_norm: Keep batch-norm layers on their stored statistics.
        share: What a client sends: its gradient, or the change of the weights after local training.
        local: Training on a round's mini-batch before a delta is shared; by default one pass of SGD in four steps.
        timed: Whether to compare the time of steps with and without the defence.

    Returns:
        Accuracy with its interval, test loss, time per client step and bytes sent.
    """
    network = harden(copy.deepcopy(model), defence, seed=seed)
    local = choose_local(share, local, batch_size=batch_size, lr=lr)
    loss = (task or Classification()).loss if loss is None else loss
    step = ClientStep.of(network, defence=defence, local=local, loss=loss, task=task)
    inside = _step_inside(network, defence, local=local, loss=loss, task=task)
    plan = _Plan(step, clients, rounds, batch_size, lr, seed, freeze_batch_norm, inside)
    _check(plan, network.client, train=train)
    student, meter = network.client, Meter()
    memories = start_memories(model, network, defence=defence, clients=clients, seed=seed, lr=lr, momentum=MOMENTUM)
    with seed_globally(student, seed):
        done = _train(student, train, plan=plan, meter=meter, memories=memories)
        # Without anything private all clients have the same network.
        own = memories if network.private else memories[:1]
        accuracy, final_loss = evaluate(student, test, loss=loss, task=task or Classification(), memories=own)
    ratio = _compare_steps(model, train, defence=defence, plan=plan, loss=loss, task=task) if timed else None
    return Utility(
        accuracy=accuracy,
        interval=wilson_of_share(accuracy, len(test)),
        final_loss=final_loss,
        step_seconds=median(meter.seconds),
        nonzero_fraction=fmean(meter.nonzero),
        bytes_sent=median(meter.bytes_sent),
        rounds=done,
        diverged=done < rounds or not math.isfinite(final_loss),
        step_ratio=ratio,
    )


def choose_local(share: Share, local: LocalTraining | None, *, batch_size: int, lr: float) -> LocalTraining | None:
    """How clients train before they share; None for those that share a gradient."""
    if share not in ("gradient", "delta"):
        raise UsageError(f"share must be 'gradient' or 'delta', got {share!r}")
    if share == "gradient":
        if local is not None:
            raise UsageError("local has no effect on clients that share a gradient; use share='delta', or drop it")
        return None
    usual = max(1, -(-batch_size // LOCAL_STEPS))
    return local if local is not None or not lr > 0 else LocalTraining(lr=lr, epochs=1, batch_size=usual)


def _step_inside(
    network: Hardened, defence: Defence | None, *, local: LocalTraining | None, loss: Loss, task: Task | None
) -> ClientStep | None:
    """The step of a defence that seals without its seal; None where nothing is sealed."""
    left = None if defence is None else defence.unsealed()
    return None if left is None else ClientStep.of(network, defence=left, local=local, loss=loss, task=task)


def _compare_steps(
    model: nn.Module, train: Batch, *, defence: Defence | None, plan: _Plan, loss: Loss, task: Task | None
) -> StepRatio:
    """Time steps with and without the defence in turn, on the same batches and the network as it was given."""
    if defence is None:
        return StepRatio(1.0, 1.0, 1.0, pairs=0)
    sides = []
    for chosen in (None, defence):
        network = harden(copy.deepcopy(model), chosen, seed=plan.seed)
        set_train_mode(network.client, freeze_batch_norm=plan.freeze_batch_norm)
        step = ClientStep.of(network, defence=chosen, local=plan.step.local, loss=loss, task=task)
        inside = _step_inside(network, chosen, local=plan.step.local, loss=loss, task=task)
        sides.append((network.client, step, inside))
    shard, ratios = deal(len(train), clients=plan.clients, seed=plan.seed)[0], []
    with seed_globally(sides[0][0], plan.seed):
        for pair in range(TIMED_PAIRS + 1):
            batch = draw(train, shard, batch_size=plan.batch_size, rng=generator(plan.seed, "timing", pair))
            seconds = {}
            # Each is first in turn: what the first leaves in the caches helps the second.
            for side in (0, 1) if pair % 2 else (1, 0):
                meter, rng = Meter(), generator(plan.seed, "timed step", pair)
                trained, step, inside = sides[side]
                client_update(trained, batch, step=step, rng=rng, meter=meter, inside=inside)
                seconds[side] = meter.seconds[0]
            ratios.append(seconds[1] / max(seconds[0], 1e-9))
    # The first pair pays for what is set up once.
    return StepRatio.of(ratios[1:])


def _check(plan: _Plan, model: nn.Module, *, train: Batch) -> None:
    if min(plan.clients, plan.rounds, plan.batch_size) < 1 or not plan.lr > 0:
        raise UsageError(
            "measure_utility needs clients, rounds, batch_size ≥ 1 and lr > 0, got "
            f"clients={plan.clients}, rounds={plan.rounds}, batch_size={plan.batch_size}, lr={plan.lr}"
        )
    if len(train) < plan.clients:
        raise UsageError(f"{plan.clients} clients need at least {plan.clients} training examples, got {len(train)}")
    local = plan.step.local
    smallest = min(plan.batch_size, len(train) // plan.clients, *(() if local is None else (local.batch_size,)))
    if smallest < 2 and not plan.freeze_batch_norm and batch_norms(model):
        raise UsageError(
            "batch norm cannot train on one example at a time; use batch_size ≥ 2 with at least "
            "two examples per client, or freeze_batch_norm=True"
        )


def _train(model: nn.Module, train: Batch, *, plan: _Plan, meter: Meter, memories: Sequence[ClientMemory]) -> int:
    """Train in place; returns the rounds done, fewer than planned when an update was not finite."""
    optimiser = torch.optim.SGD(model.parameters(), lr=plan.lr, momentum=MOMENTUM)
    shards = deal(len(train), clients=plan.clients, seed=plan.seed)
    set_train_mode(model, freeze_batch_norm=plan.freeze_batch_norm)
    for turn in range(plan.rounds):
        batches, updates = [], []
        for client, shard in enumerate(shards):
            batch = draw(train, shard, batch_size=plan.batch_size, rng=generator(plan.seed, "draw", turn, client))
            rng = generator(plan.seed, "step", turn, client)
            memory = memories[client]
            updates.append(
                client_update(model, batch, step=plan.step, rng=rng, meter=meter, memory=memory, inside=plan.inside)
            )
            batches.append(batch)
        weights = [float(len(batch)) for batch in batches]
        if not server_step(model, optimiser, updates=updates, weights=weights):
            return turn
        refresh_statistics(model, batches, memories)
    return plan.rounds
