"""The baseline of every federation: the same examples in one place, as many of them seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from leakscope.errors import UsageError
from leakscope.federated.aggregator import PlainAggregator
from leakscope.federated.client import Client
from leakscope.federated.experiment import Experiment
from leakscope.federated.strategy import FedAvg
from leakscope.types import Batch, LocalTraining


def centralise(clients: Sequence[Client], experiment: Experiment) -> tuple[list[Client], Experiment]:
    """One client with the training examples of all, and the experiment in which it sees as many of them per round.

    Epochs over all examples are as many examples as the clients' epochs over their own. A fraction of the clients, or a
    number of steps, becomes as many steps as those who take part make together. As at the clients, momentum and rates
    start again in every round. Poison is left out.

    Example:
        >>> batch = Batch(torch.zeros(10, 1), torch.zeros(10, dtype=torch.long))
        >>> clients = [Client(0, batch), Client(1, batch)]
        >>> central, plan = centralise(clients, Experiment(3, LocalTraining(0.1, steps=4, batch_size=2)))
        >>> len(central[0].train), plan.local.steps
        (20, 8)
    """
    if not clients:
        raise UsageError("centralise needs at least one client, got none")
    ordered = sorted(clients, key=lambda one: one.number)
    inputs = torch.cat([client.train.inputs for client in ordered])
    targets = torch.cat([client.train.targets for client in ordered])
    everything = Client(0, Batch(inputs, targets, ordered[0].train.bounds))
    selected = experiment.count_selected(len(clients))
    share = selected / len(clients)
    drawn = None
    if experiment.local is None:
        drawn = _count_drawn(len(targets), experiment.batch_size, selected=selected, share=share)
    return [everything], replace(
        experiment,
        local=_together(experiment.local, len(targets), selected=selected, share=share),
        batch_size=drawn,
        strategy=FedAvg(),
        aggregator=PlainAggregator(),
        fraction=1.0,
        min_completed=1.0,
    )


def _count_drawn(examples: int, batch_size: int | None, *, selected: int, share: float) -> int | None:
    """Examples of one gradient; None for all."""
    if batch_size is not None:
        return min(examples, batch_size * selected)
    return None if share == 1 else max(1, round(share * examples))


def _together(local: LocalTraining | None, examples: int, *, selected: int, share: float) -> LocalTraining | None:
    if local is None:
        return None
    if local.steps is not None:
        return replace(local, steps=local.steps * selected)
    if share == 1:
        return local
    # Whole passes cannot be cut: other examples in every round, as with other clients.
    steps = max(1, round(share * local.count_steps(examples)))
    return replace(local, epochs=None, steps=steps, shuffle=True)
