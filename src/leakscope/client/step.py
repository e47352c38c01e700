"""One client's step: local training with a defence's hooks, and a record of what was really trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor, nn

from leakscope.client.gradient import example_gradients
from leakscope.defence import ClientHooks, Defence, Hardened, StepContext, TrainingLoss
from leakscope.errors import UnsuitableError
from leakscope.steps.gradient import compute_gradient, leaves, on_scores
from leakscope.steps.local import train
from leakscope.tasks import Classification, Task
from leakscope.tensors import detach
from leakscope.types import Batch, LocalTraining, Loss, SealedUpdate, SharedUpdate, Tensors

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
        held_back: what the client keeps for its next round.
        private: gradient, or change after local training, of the parameters that never leave the client.
    """

    update: SharedUpdate | SealedUpdate
    trained: tuple[Batch, ...]
    order: Order
    held_back: Tensors = field(default_factory=dict)
    private: Tensors = field(default_factory=dict)


@dataclass(frozen=True)
class ClientStep:
    """How a client computes its update on a network of its own, which it may change inside.

    Attributes:
        loss: takes what the network returned, unprocessed.
        hooks: where a defence acts.
        local: local training; None shares one gradient.
        private: names that never leave the client.
        sends_buffers: whether what the network keeps besides parameters, such as running statistics, is sent as well,
            with its value after the last step.
    """

    loss: TrainingLoss
    hooks: ClientHooks = field(default_factory=ClientHooks)
    local: LocalTraining | None = None
    private: frozenset[str] = frozenset()
    sends_buffers: bool = False

    @classmethod
    def of(
        cls,
        network: Hardened,
        *,
        defence: Defence | None = None,
        local: LocalTraining | None = None,
        loss: Loss | None = None,
        task: Task | None = None,
        sends_buffers: bool = False,
    ) -> ClientStep:
        """The step on `network`, whose own loss comes before `loss`, and that before the task's."""
        chosen = (task or Classification()).loss if loss is None else on_scores(loss, task)
        own = network.loss or chosen
        hooks = ClientHooks() if defence is None else defence.hooks()
        return cls(own, hooks, local, network.private, sends_buffers)

    def run(self, model: nn.Module, batch: Batch, rng: Generator, *, held_back: Tensors | None = None) -> ClientRun:
        """Train `model` on `batch`, without changing its parameters, and return what there is to share.

        `held_back` is what the same client's last run returned under that name.
        """
        passes = Passes(batch)
        # Batch norm in training mode writes into these as it would into its own.
        state = {name: model.get_buffer(name).clone() for name in _stored_buffers(model)} if self.sends_buffers else {}

        def rule(parameters: dict[str, Tensor], step: int, chosen: tuple[int, ...]) -> dict[str, Tensor]:
            mine = passes.take(chosen, self.hooks.batch, rng)
            return self._gradient(StepContext(model, parameters, mine, self.loss, step, rng), state)

        with _own_randomness(rng):
            if self.local is None:
                order: Order = (tuple(range(len(batch))),)
                tensors = rule(leaves(model), 0, order[0])
            else:
                order = self.local.order(len(batch), rng)
                tensors = train(leaves(model), rule, local=self.local, order=order, create_graph=False)
            kind = "gradient" if self.local is None else "delta"
            found = detach(tensors)
            finished = SharedUpdate(kind, self._public(found), len(batch), self.local, self._public(state))
            update, kept = self._finish(finished, held_back or {}, rng)
        own = {name: value for name, value in found.items() if name in self.private}
        return ClientRun(update, passes.collect(), order, kept, own)

    def _gradient(self, context: StepContext, state: dict[str, Tensor]) -> dict[str, Tensor]:
        model, parameters, mine = context.model, context.parameters, context.batch
        if self.hooks.example_gradients is None:
            found = compute_gradient(
                model, parameters, mine.inputs, mine.targets, loss=self.loss, create_graph=False, given=state
            )
        else:
            each = example_gradients(model, parameters, mine, loss=self.loss)
            each = self.hooks.example_gradients(each, context)
            found = {name: value.mean(0) for name, value in each.items()}
        return found if self.hooks.gradient is None else self.hooks.gradient(found, context)

    def _finish(
        self, update: SharedUpdate, held_back: Tensors, rng: Generator
    ) -> tuple[SharedUpdate | SealedUpdate, Tensors]:
        sent, kept = update if self.hooks.update is None else self.hooks.update(update, rng), held_back
        if self.hooks.feedback is not None and isinstance(sent, SharedUpdate):
            sent, kept = self.hooks.feedback(sent, held_back, rng)
        if isinstance(sent, SealedUpdate) or sent is update:
            return sent, kept
        return replace(sent, tensors=self._public(sent.tensors), buffers=self._public(sent.buffers)), kept

    def _public(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: value for name, value in tensors.items() if name not in self.private}


def _stored_buffers(model: nn.Module) -> list[str]:
    """Names of the buffers that a state dict has."""
    stored = model.state_dict().keys()
    return [name for name, _value in model.named_buffers() if name in stored]


@contextmanager
def _own_randomness(rng: Generator) -> Iterator[None]:
    """Let dropout and its like draw from `rng` without disturbing the global generator."""
    seed = int(torch.randint(2**62, (1,), generator=rng))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


BatchHook = Callable[[Batch, Generator], Batch]


class Passes:
    """Deals the examples of every step, and keeps what a hook made of them in the order of the private batch."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._used: list[tuple[tuple[int, ...], Batch]] = []
        self._changed = False

    def take(self, chosen: tuple[int, ...], hook: BatchHook | None, rng: Generator) -> Batch:
        """The examples at `chosen` as the network gets them."""
        whole, rows = self._batch, list(chosen)
        # The batch itself where it is all of it: indexing would change its layout in memory.
        full = len(rows) == len(whole) and rows == list(range(len(whole)))
        mine = whole if full else Batch(whole.inputs[rows], whole.targets[rows], whole.bounds)
        if hook is None:
            return mine
        # The hook gets a copy: what it does in place must not reach the caller's examples.
        given = hook(Batch(mine.inputs.clone(), mine.targets.clone(), mine.bounds), rng)
        if (given.inputs.shape, given.inputs.dtype) != (mine.inputs.shape, mine.inputs.dtype):
            raise UnsuitableError(
                "a defence must keep number, shape and dtype of the examples of a step, expected "
                f"{list(mine.inputs.shape)} {mine.inputs.dtype}, got {list(given.inputs.shape)} {given.inputs.dtype}"
            )
        self._changed |= not _same(given, mine)
        self._used.append((chosen, given))
        return given

    def collect(self) -> tuple[Batch, ...]:
        """One batch per pass, or none where nothing was changed.

        Targets are those trained with while there is one of the private form per example; mixed or
        smoothed ones have no such form, and the private ones stay.
        """
        if not self._changed:
            return ()
        passes: list[Batch] = []
        visits = [0] * len(self._batch)
        for chosen, given in self._used:
            for row, position in enumerate(chosen):
                if visits[position] == len(passes):
                    passes.append(Batch(self._batch.inputs.clone(), self._batch.targets.clone(), given.bounds))
                one = passes[visits[position]]
                one.inputs[position] = given.inputs[row]
                if given.targets.dtype == one.targets.dtype and given.targets[row].shape == one.targets[0].shape:
                    one.targets[position] = given.targets[row]
                visits[position] += 1
        return tuple(passes)


def _same(one: Batch, other: Batch) -> bool:
    pairs = ((one.inputs, other.inputs), (one.targets, other.targets))
    return all(a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b) for a, b in pairs)
