"""The pieces of one federated round: deal, draw, share, apply."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor, nn

from leakscope import wire
from leakscope.client import ClientStep
from leakscope.errors import BadInputError, UsageError
from leakscope.federated.aggregation import fedavg
from leakscope.rng import child_seed, generator
from leakscope.tensors import all_finite
from leakscope.types import Batch, SharedUpdate, Tensors

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@dataclass
class Meter:
    """What is read off each client step: its time, how much of the network it sends, and in how many bytes."""

    seconds: list[float] = field(default_factory=list)
    nonzero: list[float] = field(default_factory=list)
    bytes_sent: list[int] = field(default_factory=list)


def deal(count: int, *, clients: int, seed: int) -> list[Tensor]:
    """Split positions 0 … count − 1 at random into one shard per client, sizes as equal as can be."""
    order = torch.randperm(count, generator=generator(seed, "shards"))
    return list(order.tensor_split(clients))


def draw(train: Batch, shard: Tensor, *, batch_size: int, rng: Generator) -> Batch:
    """Draw a mini-batch from `shard` without replacement; a small shard gives all it has."""
    rows = shard[torch.randperm(len(shard), generator=rng)[:batch_size]]
    inputs = train.inputs[rows.to(train.inputs.device)]
    return Batch(inputs, train.targets[rows.to(train.targets.device)], train.bounds)


@dataclass
class HeldBack:
    """What one client holds back from round to round."""

    held_back: Tensors = field(default_factory=dict)


def client_update(
    model: nn.Module, batch: Batch, *, step: ClientStep, rng: Generator, meter: Meter, memory: HeldBack | None = None
) -> SharedUpdate:
    """Run one client's step and note its cost; what it holds back is left in its `memory`."""
    kept = HeldBack() if memory is None else memory
    started = _now(batch.inputs.device)
    run = step.run(model, batch, rng, held_back=kept.held_back)
    meter.seconds.append(_now(batch.inputs.device) - started)
    update, kept.held_back = run.update, run.held_back
    if not isinstance(update, SharedUpdate) or update.kind != "gradient":
        found = f"a {update.kind}" if isinstance(update, SharedUpdate) else f"a {type(update).__name__}"
        raise UsageError(
            f"measure_utility needs a client that shares a gradient, got {found}; "
            "measure the defence without what seals the update (sealing alone does not change accuracy)"
        )
    total = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    meter.nonzero.append(sum(int(value.count_nonzero()) for value in update.tensors.values()) / max(total, 1))
    meter.bytes_sent.append(len(wire.encode(update.tensors)))
    return update


def server_step(
    model: nn.Module, optimiser: torch.optim.Optimizer, *, updates: Sequence[SharedUpdate], weights: Sequence[float]
) -> bool:
    """Apply the averaged gradient. Returns False, with the model unchanged, when it is not finite."""
    mean = fedavg(updates, weights).tensors
    if not all_finite(mean):
        return False
    parameters = dict(model.named_parameters())
    for name, gradient in mean.items():
        if name not in parameters or parameters[name].shape != gradient.shape:
            raise BadInputError(
                f"the client shares {name!r} of shape {list(gradient.shape)}, which is not a parameter of the model; "
                "a defence must keep names and shapes of what is shared"
            )
    optimiser.zero_grad()
    for name, gradient in mean.items():
        parameters[name].grad = gradient.to(parameters[name])
    optimiser.step()
    return True


def set_train_mode(model: nn.Module, *, freeze_batch_norm: bool) -> None:
    """Train mode for all modules, except batch norms that are to keep their statistics."""
    model.train()
    if freeze_batch_norm:
        for module in batch_norms(model):
            module.eval()


def batch_norms(model: nn.Module) -> list[nn.Module]:
    """All batch-norm layers."""
    return [module for module in model.modules() if isinstance(module, BATCH_NORMS)]


@torch.no_grad()
def refresh_statistics(model: nn.Module, batches: Sequence[Batch]) -> None:
    """Let batch norms in train mode see each batch once: client steps leave the buffers alone."""
    if any(module.training for module in batch_norms(model)):
        for batch in batches:
            model(batch.inputs)


@contextmanager
def seed_globally(model: nn.Module, seed: int) -> Iterator[None]:
    """Seed what draws from the global generator, and give the caller's state back afterwards."""
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    with torch.random.fork_rng(devices=list(devices)):
        torch.manual_seed(child_seed(seed, "global"))
        yield


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # kernels run behind: else only their launch would be timed
        return time.perf_counter()
    # Of the processor: other programs on a busy machine must not look like an expensive defence.
    return time.process_time()
