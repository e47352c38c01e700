"""What a client sends: checks of its batch, a network of its own, a step on it."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import torch
from torch import Generator, Tensor, nn

from leakscope import rng as random
from leakscope.client.step import ClientRun, ClientStep
from leakscope.defence import Defence, Hardened
from leakscope.errors import BadInputError
from leakscope.networks import check_output, check_weights, usual_task
from leakscope.steps.gradient import run_network
from leakscope.tasks import NextToken, Task
from leakscope.tensors import all_finite
from leakscope.types import Batch, LocalTraining, Loss, SealedUpdate, SharedUpdate, Tensors


def harden(model: nn.Module, defence: Defence | None, *, seed: int = 0) -> Hardened:
    """The network under `defence`, on both sides; without one the model on both."""
    return Hardened(model, model) if defence is None else defence.harden(model, seed=seed)


def run_client(
    network: nn.Module | Hardened,
    batch: Batch,
    *,
    defence: Defence | None = None,
    local: LocalTraining | None = None,
    seed: int = 0,
    loss: Loss | None = None,
    task: Task | None = None,
    held_back: Tensors | None = None,
    sends_buffers: bool = False,
) -> ClientRun:
    """Compute what a client with `batch` would send, and what it trained on.

    `network` is what the federation trains. A defence that changes the network must have been applied
    before: give what `harden` returned, whose own loss then comes before `loss`. All of it happens on a private
    copy: a network that keeps its inputs would otherwise hand the batch to whoever holds the model. `held_back` is what
    the same client's last run returned under that name. With `sends_buffers` the update carries the running statistics
    after training as well, as clients that send their whole state do.
    """
    given = network if isinstance(network, Hardened) else Hardened(network, network)
    check_weights(given.client)
    model = _private_copy(given.client)
    task = _find_task(model, batch) if task is None and given.loss is None else task
    check_targets(model, batch, own_loss=given.loss is not None, task=task)
    step = ClientStep.of(given, defence=defence, local=local, loss=loss, task=task, sends_buffers=sends_buffers)
    run = step.run(model, batch, client_generator(seed, batch), held_back=held_back)
    if isinstance(run.update, SharedUpdate) and not all_finite(run.update.tensors):
        raise BadInputError("the client's update holds NaN or Inf; lower the learning rate or check the model")
    return run


def _find_task(model: nn.Module, batch: Batch) -> Task | None:
    """The task of a network that predicts tokens; None is what all others are taken for."""
    if batch.inputs.is_floating_point():
        return None
    found = usual_task(model, tuple(batch.inputs.shape[1:]))
    return found if isinstance(found, NextToken) else None


def share(
    network: nn.Module | Hardened,
    batch: Batch,
    *,
    defence: Defence | None = None,
    local: LocalTraining | None = None,
    seed: int = 0,
    loss: Loss | None = None,
    task: Task | None = None,
    sends_buffers: bool = False,
) -> SharedUpdate | SealedUpdate:
    """Compute what a client with `batch` would send: `run_client(…).update`."""
    return run_client(
        network,
        batch,
        defence=defence,
        local=local,
        seed=seed,
        loss=loss,
        task=task,
        sends_buffers=sends_buffers,
    ).update


def client_generator(seed: int, batch: Batch) -> Generator:
    """The client's randomness: of its seed and its examples, so that nobody who only knows the seed can repeat it."""
    return random.generator(seed, "client", digest(batch))


def digest(batch: Batch) -> str:
    """A fingerprint of private examples: the same for the same bytes, and of no use to find them."""
    found = hashlib.sha256()
    for value in (batch.inputs, batch.targets):
        found.update(f"{value.dtype} {list(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _private_copy(model: nn.Module) -> nn.Module:
    """A deep copy; results that a layer kept of an earlier pass are copied without their graph."""
    kept = [value for module in model.modules() for value in vars(module).values() if isinstance(value, Tensor)]
    memo = {id(value): value.detach().clone() for value in kept if not value.is_leaf}
    try:
        return copy.deepcopy(model, memo)
    except (RuntimeError, TypeError) as error:
        raise BadInputError(
            f"the model cannot be copied, and a client must not train on the caller's own: {error}; "
            "remove what it keeps from earlier passes"
        ) from error


def check_targets(model: nn.Module, batch: Batch, *, own_loss: bool = False, task: Task | None = None) -> None:
    """Insist on class labels the model can predict, or on what else the declared `task` asks for.

    With `own_loss` the network's output is what that loss takes: labels are then compared only with
    scores that can be found in it.
    """
    if task is not None and not own_loss:
        task.check_targets(batch.targets, task.outputs(_probe(model, batch)))
        return
    if batch.targets.is_floating_point() or batch.targets.ndim != 1:
        return
    if batch.targets.dtype != torch.long:
        raise BadInputError(f"class labels must be int64, got {batch.targets.dtype}; convert them with .long()")
    output = _probe(model, batch)
    try:
        outputs = check_output(output).shape[1]
    except BadInputError:
        if own_loss:
            return
        raise
    # One score tells two classes apart, under a logistic loss.
    classes = max(2, outputs)
    low, high = int(batch.targets.min()), int(batch.targets.max())
    if low < 0 or high >= classes:
        raise BadInputError(
            f"labels must lie in 0…{classes - 1} for this model, got {low}…{high}; "
            "map the labels or build the model with more classes"
        )


def _probe(model: nn.Module, batch: Batch) -> Any:
    """What the model returns for the first example, twice: batch normalisation in training mode refuses one."""
    probe = batch.inputs[:1].expand(2, *batch.inputs.shape[1:])
    try:
        # Active dropout would otherwise advance the caller's random numbers.
        with torch.no_grad(), torch.random.fork_rng():
            return run_network(model, {}, probe)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        if isinstance(error, BadInputError):
            raise
        raise BadInputError(
            f"the model does not accept inputs of shape {list(batch.inputs.shape)} in {batch.inputs.dtype}: {error}; "
            "convert the batch with .to(), or use the model it belongs to"
        ) from error
