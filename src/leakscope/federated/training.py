"""Train a network federatedly under a defence, and measure what it still learns."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from statistics import fmean, median

import torch
from torch import nn
from torch.nn import functional

from leakscope.client import ClientStep, harden
from leakscope.defence import Defence
from leakscope.errors import UsageError
from leakscope.federated.rounds import (
    HeldBack,
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
from leakscope.federated.utility import StepRatio, Utility, wilson_interval
from leakscope.rng import generator
from leakscope.tasks import Classification, Task
from leakscope.types import Batch, Loss

MOMENTUM = 0.9
EVALUATION_CHUNK = 512
# Of steps with and without a defence, for the ratio of their times.
TIMED_PAIRS = 11


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
    loss: Loss = functional.cross_entropy,
    task: Task | None = None,
    freeze_batch_norm: bool = False,
) -> Utility:
    """Train a copy of `model` with every client under `defence`, then test it.

    `train` is dealt at random into one shard per client. Each round every client draws a
    mini-batch from its shard without replacement and shares its gradient, computed as in
    `leakscope.client.run_client`; the server averages the gradients by batch size and takes one SGD step
    with momentum 0.9. All randomness follows from `seed`; the caller's model and global random state stay
    as they were. Parameters that are not shared keep their first value.

    The copy trains in train mode. After each round a forward pass over the clients' own
    mini-batches refreshes the running statistics of batch-norm layers. Defences that look at one
    example at a time need `freeze_batch_norm`, which leaves those layers in eval mode.

    Args:
        model: The network as it is without the defence.
        train: Examples of all clients together.
        test: Examples that accuracy and final loss are taken on.
        defence: What the clients do against leakage; it must share a gradient.
        clients: Number of clients; all take part in every round.
        rounds: Server steps.
        batch_size: Examples per client and round, at most its shard.
        lr: The server's learning rate.
        seed: Decides shards, mini-batches and the randomness of clients and defence.
        loss: What clients train with unless the defence brings its own, and what `final_loss` is measured with.
        task: How answers are told right from wrong; by default classification.
        freeze_batch_norm: Keep batch-norm layers on their stored statistics.

    Returns:
        Accuracy with its interval, test loss, time per client step and bytes sent.
    """
    network = harden(copy.deepcopy(model), defence, seed=seed)
    step = ClientStep.of(network, defence=defence, loss=loss)
    plan = _Plan(step, clients, rounds, batch_size, lr, seed, freeze_batch_norm)
    _check(plan, network.client, train=train)
    student, meter = network.client, Meter()
    with seed_globally(student, seed):
        done = _train(student, train, plan=plan, meter=meter)
        hits, final_loss = _evaluate(student, test, loss=loss, task=task or Classification())
    return Utility(
        accuracy=hits / len(test),
        interval=wilson_interval(hits, len(test)),
        final_loss=final_loss,
        step_seconds=median(meter.seconds),
        nonzero_fraction=fmean(meter.nonzero),
        bytes_sent=median(meter.bytes_sent),
        rounds=done,
        diverged=done < rounds or not math.isfinite(final_loss),
        step_ratio=_compare_steps(model, train, defence=defence, plan=plan, loss=loss),
    )


def _compare_steps(model: nn.Module, train: Batch, *, defence: Defence | None, plan: _Plan, loss: Loss) -> StepRatio:
    """Time steps with and without the defence in turn, on the same batches and the network as it was given."""
    if defence is None:
        return StepRatio(1.0, 1.0, 1.0, pairs=0)
    sides = []
    for chosen in (None, defence):
        network = harden(copy.deepcopy(model), chosen, seed=plan.seed)
        set_train_mode(network.client, freeze_batch_norm=plan.freeze_batch_norm)
        sides.append((network.client, ClientStep.of(network, defence=chosen, loss=loss)))
    shard, ratios = deal(len(train), clients=plan.clients, seed=plan.seed)[0], []
    with seed_globally(sides[0][0], plan.seed):
        for pair in range(TIMED_PAIRS + 1):
            batch = draw(train, shard, batch_size=plan.batch_size, rng=generator(plan.seed, "timing", pair))
            seconds = {}
            # Each is first in turn: what the first leaves in the caches helps the second.
            for side in (0, 1) if pair % 2 else (1, 0):
                meter, rng = Meter(), generator(plan.seed, "timed step", pair)
                client_update(sides[side][0], batch, step=sides[side][1], rng=rng, meter=meter)
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
    smallest = min(plan.batch_size, len(train) // plan.clients)
    if smallest < 2 and not plan.freeze_batch_norm and batch_norms(model):
        raise UsageError(
            "batch norm cannot train on one example at a time; use batch_size ≥ 2 with at least "
            "two examples per client, or freeze_batch_norm=True"
        )


def _train(model: nn.Module, train: Batch, *, plan: _Plan, meter: Meter) -> int:
    """Train in place; returns the rounds done, fewer than planned when an update was not finite."""
    optimiser = torch.optim.SGD(model.parameters(), lr=plan.lr, momentum=MOMENTUM)
    shards = deal(len(train), clients=plan.clients, seed=plan.seed)
    set_train_mode(model, freeze_batch_norm=plan.freeze_batch_norm)
    memories = [HeldBack() for _ in shards]
    for turn in range(plan.rounds):
        batches, updates = [], []
        for client, shard in enumerate(shards):
            batch = draw(train, shard, batch_size=plan.batch_size, rng=generator(plan.seed, "draw", turn, client))
            rng = generator(plan.seed, "step", turn, client)
            memory = memories[client]
            updates.append(client_update(model, batch, step=plan.step, rng=rng, meter=meter, memory=memory))
            batches.append(batch)
        weights = [float(len(batch)) for batch in batches]
        if not server_step(model, optimiser, updates=updates, weights=weights):
            return turn
        refresh_statistics(model, batches)
    return plan.rounds


@torch.no_grad()
def _evaluate(model: nn.Module, test: Batch, *, loss: Loss, task: Task) -> tuple[int, float]:
    """Return the number of right answers and the mean loss, in eval mode."""
    model.eval()
    hits, total = 0, 0.0
    parts = zip(test.inputs.split(EVALUATION_CHUNK), test.targets.split(EVALUATION_CHUNK), strict=True)
    for inputs, targets in parts:
        output = task.check_output(model(inputs))
        hits += task.count_correct(output, targets)
        total += float(loss(output, targets)) * len(inputs)
    return hits, total / len(test)
