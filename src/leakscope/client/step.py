"""The client: local training on a private copy of the network, with a defence's hooks, and what it sends."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor, nn

from leakscope import rng as random
from leakscope.client.examples import example_gradients
from leakscope.client.gradient import compute_gradient, leaves, on_scores
from leakscope.client.local import train
from leakscope.client.passes import Passes
from leakscope.client.targets import check_targets
from leakscope.defence import ClientHooks, Defence, Hardened, StepContext, TrainingLoss
from leakscope.errors import BadInputError
from leakscope.networks import check_weights
from leakscope.tasks import Classification, Task
from leakscope.tensors import all_finite, detach
from leakscope.types import Batch, LocalTraining, Loss, SealedUpdate, SharedUpdate

if TYPE_CHECKING:
    from leakscope.local_training import Order


@dataclass(frozen=True)
class ClientRun:
    """What a client did: what it sends, and what only `score` may see besides.

    Attributes:
        update: what is sent.
        trained: what was really trained on, one batch per pass, aligned with the private batch; empty where that
            is the private batch itself. A pass that did not reach an example holds it unchanged.
        order: positions of the examples of every local step.
    """

    update: SharedUpdate | SealedUpdate
    trained: tuple[Batch, ...]
    order: Order


@dataclass(frozen=True)
class ClientStep:
    """How a client computes its update on a network of its own, which it may change inside.

    Attributes:
        loss: takes what the network returned, unprocessed.
        hooks: where a defence acts.
        local: local training; None shares one gradient.
        private: names that never leave the client.
    """

    loss: TrainingLoss
    hooks: ClientHooks = field(default_factory=ClientHooks)
    local: LocalTraining | None = None
    private: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        network: Hardened,
        *,
        defence: Defence | None = None,
        local: LocalTraining | None = None,
        loss: Loss | None = None,
        task: Task | None = None,
    ) -> ClientStep:
        """The step on `network`, whose own loss comes before `loss`, and that before the task's."""
        chosen = (task or Classification()).loss if loss is None else on_scores(loss, task)
        own = network.loss or chosen
        return cls(own, ClientHooks() if defence is None else defence.hooks(), local, network.private)

    def run(self, model: nn.Module, batch: Batch, rng: Generator) -> ClientRun:
        """Train `model` on `batch`, without changing its parameters, and return what there is to share."""
        passes = Passes(batch)

        def rule(parameters: dict[str, Tensor], step: int, chosen: tuple[int, ...]) -> dict[str, Tensor]:
            mine = passes.take(chosen, self.hooks.batch, rng)
            return self._gradient(StepContext(model, parameters, mine, self.loss, step, rng))

        with _own_randomness(rng):
            if self.local is None:
                order: Order = (tuple(range(len(batch))),)
                tensors = rule(leaves(model), 0, order[0])
            else:
                order = self.local.order(len(batch), rng)
                tensors = train(leaves(model), rule, local=self.local, order=order, create_graph=False)
            kind = "gradient" if self.local is None else "delta"
            update = self._finish(SharedUpdate(kind, self._public(detach(tensors)), len(batch), self.local), rng)
        return ClientRun(update, passes.trained(), order)

    def _gradient(self, context: StepContext) -> dict[str, Tensor]:
        model, parameters, mine = context.model, context.parameters, context.batch
        if self.hooks.example_gradients is None:
            found = compute_gradient(model, parameters, mine.inputs, mine.targets, loss=self.loss, create_graph=False)
        else:
            each = example_gradients(model, parameters, mine, loss=self.loss)
            each = self.hooks.example_gradients(each, context)
            found = {name: value.mean(0) for name, value in each.items()}
        return found if self.hooks.gradient is None else self.hooks.gradient(found, context)

    def _finish(self, update: SharedUpdate, rng: Generator) -> SharedUpdate | SealedUpdate:
        if self.hooks.update is None:
            return update
        sent = self.hooks.update(update, rng)
        if isinstance(sent, SealedUpdate):
            return sent
        return replace(sent, tensors=self._public(sent.tensors), buffers=self._public(sent.buffers))

    def _public(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: value for name, value in tensors.items() if name not in self.private}


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
) -> ClientRun:
    """Compute what a client with `batch` would send, and what it trained on.

    `network` is what the federation trains. A defence that changes the network must have been applied
    before: give what `harden` returned, whose own loss then comes before `loss`. All of it happens on a private
    copy: a network that keeps its inputs would otherwise hand the batch to whoever holds the model.
    """
    given = network if isinstance(network, Hardened) else Hardened(network, network)
    check_weights(given.client)
    model = _private_copy(given.client)
    check_targets(model, batch, own_loss=given.loss is not None, task=task)
    step = ClientStep.of(given, defence=defence, local=local, loss=loss, task=task)
    run = step.run(model, batch, client_generator(seed, batch))
    if isinstance(run.update, SharedUpdate) and not all_finite(run.update.tensors):
        raise BadInputError("the client's update holds NaN or Inf; lower the learning rate or check the model")
    return run


def share(
    network: nn.Module | Hardened,
    batch: Batch,
    *,
    defence: Defence | None = None,
    local: LocalTraining | None = None,
    seed: int = 0,
    loss: Loss | None = None,
    task: Task | None = None,
) -> SharedUpdate | SealedUpdate:
    """Compute what a client with `batch` would send: `run_client(…).update`."""
    return run_client(network, batch, defence=defence, local=local, seed=seed, loss=loss, task=task).update


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


@contextmanager
def _own_randomness(rng: Generator) -> Iterator[None]:
    """Let dropout and its like draw from `rng` without disturbing the global generator."""
    seed = int(torch.randint(2**62, (1,), generator=rng))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
