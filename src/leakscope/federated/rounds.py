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
from leakscope.federated.memory import ClientMemory
from leakscope.rng import child_seed, generator
from leakscope.tensors import all_finite
from leakscope.types import Batch, SealedUpdate, SharedUpdate

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


# Of how many first updates, and of which of the later ones, the size on the wire is measured.
FIRST_WEIGHED, WEIGHED_EVERY = 8, 32


@dataclass
class Meter:
    """What is read off each client step: its time, how much of the network it sends, and in how many bytes."""

    seconds: list[float] = field(default_factory=list)
    nonzero: list[float] = field(default_factory=list)
    bytes_sent: list[int] = field(default_factory=list)

    @property
    def is_weighing(self) -> bool:
        """Whether this step's update is written out: encoding each takes longer than the step itself."""
        return len(self.seconds) <= FIRST_WEIGHED or len(self.seconds) % WEIGHED_EVERY == 0


def deal(count: int, *, clients: int, seed: int) -> list[Tensor]:
    """Split positions 0 … count − 1 at random into one shard per client, sizes as equal as can be."""
    order = torch.randperm(count, generator=generator(seed, "shards"))
    return list(order.tensor_split(clients))


def draw(train: Batch, shard: Tensor, *, batch_size: int, rng: Generator) -> Batch:
    """Draw a mini-batch from `shard` without replacement; a small shard gives all it has."""
    rows = shard[torch.randperm(len(shard), generator=rng)[:batch_size]]
    inputs = train.inputs[rows.to(train.inputs.device)]
    return Batch(inputs, train.targets[rows.to(train.targets.device)], train.bounds)


def client_update(
    model: nn.Module,
    batch: Batch,
    *,
    step: ClientStep,
    rng: Generator,
    meter: Meter,
    memory: ClientMemory | None = None,
    inside: ClientStep | None = None,
) -> SharedUpdate:
    """Run one client's step and note its cost; what the client keeps is left in its `memory`.

    Of a sealed update time and bytes are noted, and `inside`, the same step without the seal, says what it opens to.
    """
    held_back = {} if memory is None else memory.held_back
    if memory is not None:
        memory.enter(model)
    state = rng.get_state()
    started = _now(batch.inputs.device)
    run = step.run(model, batch, rng, held_back=held_back)
    meter.seconds.append(_now(batch.inputs.device) - started)
    sent = None
    if inside is not None and isinstance(run.update, SealedUpdate):
        sent = len(run.update.payload)
        run = inside.run(model, batch, rng.set_state(state), held_back=held_back)
    update, kind = run.update, "gradient" if step.local is None else "delta"
    if not isinstance(update, SharedUpdate) or update.kind != kind:
        found = f"a {update.kind}" if isinstance(update, SharedUpdate) else f"a {type(update).__name__}"
        raise UsageError(
            f"this training needs clients that share a {kind}, got {found}; "
            "measure the defence without what seals the update (sealing alone does not change accuracy)"
        )
    if memory is not None:
        memory.learn(run, kind=kind)
    total = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    meter.nonzero.append(sum(int(value.count_nonzero()) for value in update.tensors.values()) / max(total, 1))
    if meter.is_weighing:
        meter.bytes_sent.append(len(wire.encode(update.tensors)) if sent is None else sent)
    return update


def server_step(
    model: nn.Module, optimiser: torch.optim.Optimizer, *, updates: Sequence[SharedUpdate], weights: Sequence[float]
) -> bool:
    """Descend along the mean gradient, or add the mean change. False, with the model unchanged, where it is not finite.

    A change is added as it is: the clients' optimisers have already set its length and its sign.
    """
    mean = fedavg(updates, weights)
    if not all_finite(mean.tensors):
        return False
    parameters = dict(model.named_parameters())
    for name, value in mean.tensors.items():
        if name not in parameters or parameters[name].shape != value.shape:
            raise BadInputError(
                f"the client shares {name!r} of shape {list(value.shape)}, which is not a parameter of the model; "
                "a defence must keep names and shapes of what is shared"
            )
    if mean.kind == "delta":
        with torch.no_grad():
            for name, change in mean.tensors.items():
                parameters[name].add_(change.to(parameters[name]))
        return True
    optimiser.zero_grad()
    for name, gradient in mean.tensors.items():
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
def refresh_statistics(model: nn.Module, batches: Sequence[Batch], memories: Sequence[ClientMemory]) -> None:
    """Let batch norms in train mode see each client's batch once: client steps leave the buffers alone."""
    if any(module.training for module in batch_norms(model)):
        for batch, memory in zip(batches, memories, strict=True):
            memory.enter(model)
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
