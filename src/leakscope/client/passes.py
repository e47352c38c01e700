"""What a client really trained on, where a defence changes the examples before the network sees them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator

from leakscope.errors import UnsuitableError
from leakscope.types import Batch

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
        full = rows == list(range(len(whole)))
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

    def trained(self) -> tuple[Batch, ...]:
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
