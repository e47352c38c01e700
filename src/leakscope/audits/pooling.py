"""The mean of several clients' updates, taken for one update of all their examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from leakscope.client import ClientRun
from leakscope.errors import UnsuitableError
from leakscope.federated import fedavg
from leakscope.types import Batch, SharedUpdate


def pool(clients: Sequence[tuple[Batch, ClientRun]]) -> tuple[Batch, ClientRun]:
    """What someone has who sees only the weighted mean of the clients' updates: all examples, and one run behind it.

    Of gradients that is exact: the mean by examples is the gradient of all of them. Of local training it is as if one
    client had made the same steps on batches as many times as large; for one step that is exact too.
    """
    runs = [run for _, run in clients]
    updates = [run.update for run in runs if isinstance(run.update, SharedUpdate)]
    if len(updates) < len(runs):
        raise UnsuitableError("sealed updates have no mean that could be looked at; open them first")
    mean = fedavg(updates)
    local = None if mean.local is None else replace(mean.local, batch_size=mean.local.batch_size * len(runs))
    trained = [_join(batches) for batches in zip(*(run.trained for run in runs), strict=False)]
    return _join([batch for batch, _ in clients]), ClientRun(
        replace(mean, local=local),
        tuple(trained) if all(len(run.trained) == len(trained) for run in runs) else (),
        _merge([(len(batch), run.order) for batch, run in clients]),
    )


def _join(batches: Sequence[Batch]) -> Batch:
    return Batch(
        torch.cat([batch.inputs for batch in batches]),
        torch.cat([batch.targets for batch in batches]),
        batches[0].bounds,
    )


def _merge(orders: Sequence[tuple[int, Sequence[tuple[int, ...]]]]) -> tuple[tuple[int, ...], ...]:
    """The examples of every step of all clients; one that has made all its steps has none in the next."""
    steps: list[tuple[int, ...]] = [()] * max(len(order) for _, order in orders)
    first = 0
    for count, order in orders:
        for step, chosen in enumerate(order):
            steps[step] += tuple(first + position for position in chosen)
        first += count
    return tuple(steps)
