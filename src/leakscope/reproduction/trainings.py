"""Trainings of cells, in a worker: load, deal to clients, train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from leakscope import data
from leakscope.data.gaussians import two_gaussians
from leakscope.errors import UsageError
from leakscope.federated import Client, Experiment, PlainAggregator, SealedAggregator, Training, keygen, train_federated
from leakscope.federated.central import centralise
from leakscope.federated.experiment import ServerOptimiser
from leakscope.federated.specs import poison_from_spec, server_from_spec, strategy_from_spec
from leakscope.registry import defence_from_spec
from leakscope.rng import child_seed
from leakscope.tasks import Task
from leakscope.types import Batch, LocalTraining

PLANE = "two-gaussians"
_HIDDEN = 8
_KNOWN = {"data", "rounds", "clients", "local", "strategy", "defence", "examples", "test_examples", "seed", "central"}
_KNOWN |= {"partition", "alpha", "shards", "size", "batch_size", "held_out", "server", "fraction", "min_completed"}
_KNOWN |= {"poison", "seal", "freeze_batch_norm", "test_data"}


@dataclass(frozen=True)
class TrainingData:
    """The clients' examples and the test examples; `task` is None for classification."""

    clients: tuple[Batch, ...]
    test: Batch
    task: Task | None = None


def plane_network(seed: int) -> nn.Module:
    """The network of the task in the plane: 2-8-2 with sigmoids, as the thesis describes it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(child_seed(seed, "plane"))
        return nn.Sequential(nn.Linear(2, _HIDDEN), nn.Sigmoid(), nn.Linear(_HIDDEN, 2))


def load_training(how: Mapping[str, Any]) -> TrainingData:
    """What is trained and tested on."""
    odd = sorted(set(how) - _KNOWN)
    if odd:
        raise UsageError(f"a training has no setting {odd[0]!r}; expected some of {', '.join(sorted(_KNOWN))}")
    if how["data"] == PLANE:
        samples = {} if how["examples"] is None else {"samples": how["examples"]}
        task = two_gaussians(seed=how["seed"], **samples)
        return TrainingData(task.train, task.test)
    if isinstance(how["data"], str):
        train, test = _load(how["data"], "train", how), _load_test(how)
        parts = data.partition(
            train.targets,
            clients=how["clients"],
            scheme=how.get("partition", "iid"),
            alpha=how.get("alpha", 0.5),
            shards=how.get("shards", 2),
            seed=how["seed"],
        )
        return TrainingData(tuple(_take(train, rows) for rows in parts), test, data.info(how["data"]).task)
    trains = tuple(_load(name, "train", how) for name in how["data"])
    return TrainingData(trains, _load_test(how), data.info(how["data"][0]).task)


def train(model: nn.Module, how: Mapping[str, Any], *, subject: TrainingData | None = None) -> Training:
    """Train a copy of `model`."""
    found = subject or load_training(how)
    clients = _make_clients(found, how)
    experiment = make_experiment(how, task=found.task)
    if how.get("central", False):
        clients, experiment = centralise(clients, experiment)
    return train_federated(model, clients, found.test, experiment)


def make_experiment(how: Mapping[str, Any], *, task: Task | None = None) -> Experiment:
    """The settings of a training as a value."""
    local, server, seal = how["local"], how.get("server"), how.get("seal")
    return Experiment(
        rounds=how["rounds"],
        local=None if local is None else LocalTraining(**local),
        strategy=strategy_from_spec(how["strategy"]),
        server=ServerOptimiser() if server is None else server_from_spec(server),
        defence=defence_from_spec(how["defence"]),
        task=task,
        fraction=how.get("fraction", 1.0),
        min_completed=how.get("min_completed", 1.0),
        seed=how["seed"],
        freeze_batch_norm=how.get("freeze_batch_norm", False),
        batch_size=how.get("batch_size"),
        aggregator=PlainAggregator() if seal is None else SealedAggregator.of(keygen(seal), range(how["clients"])),
    )


def _make_clients(found: TrainingData, how: Mapping[str, Any]) -> list[Client]:
    classes = int(max(part.targets.max() for part in found.clients)) + 1
    poisoned = dict(poison_from_spec(spec, classes=classes) for spec in how.get("poison", ()))
    return [
        Client.of(number, part, held_out=how.get("held_out", 0.1), poison=poisoned.get(number))
        for number, part in enumerate(found.clients)
    ]


def _load_test(how: Mapping[str, Any]) -> Batch:
    """Of the sets that are trained on, unless others are named."""
    named = how.get("test_data") or how["data"]
    return _join([_load(name, "test", how) for name in ([named] if isinstance(named, str) else named)])


def _load(name: str, split: str, how: Mapping[str, Any]) -> Batch:
    count = how["examples"] if split == "train" else how["test_examples"]
    return data.load(name, split=split, count=count, seed=how["seed"], size=_size(how))


def _size(how: Mapping[str, Any]) -> Any:
    size = how.get("size")
    return tuple(size) if isinstance(size, list) else size


def _take(batch: Batch, rows: torch.Tensor) -> Batch:
    return Batch(batch.inputs[rows], batch.targets[rows], batch.bounds)


def _join(batches: Sequence[Batch]) -> Batch:
    inputs, targets = (torch.cat(parts) for parts in zip(*((one.inputs, one.targets) for one in batches), strict=True))
    return Batch(inputs, targets, batches[0].bounds)
