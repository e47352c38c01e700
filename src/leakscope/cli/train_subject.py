"""What `leakscope train` trains: a network, the clients' examples, the test examples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from leakscope.cli.loading import name_options
from leakscope.cli.train import PLANE
from leakscope.data import info, load, partition
from leakscope.data.gaussians import two_gaussians
from leakscope.errors import UsageError
from leakscope.federated import Client, Poison
from leakscope.federated.specs import poison_from_spec
from leakscope.models import load_network
from leakscope.rng import child_seed
from leakscope.tasks import Task
from leakscope.types import Batch
from leakscope.user_code import is_code

_HIDDEN = 8


@dataclass(frozen=True)
class TrainOptions:
    """Options of the command that say what is trained on; their help says what they mean."""

    data: str
    model: str | None = None
    clients: int = 4
    partition: str = "iid"
    alpha: float | None = None
    shards: int | None = None
    examples: int | None = None
    test_examples: int | None = None
    held_out: float = 0.1
    poison: tuple[str, ...] = ()
    weights: Path | None = None
    classes: int | None = None
    normalise: str | None = None
    size: int | None = None
    bounds: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class TrainSubject:
    """What the options stand for; `task` is None for classification."""

    model: nn.Module
    clients: tuple[Client, ...]
    test: Batch
    task: Task | None = None


def load_subject(options: TrainOptions) -> TrainSubject:
    """Load data and network, and deal the examples to the clients."""
    if options.data == PLANE:
        return _load_plane(options)
    if options.model is None:
        raise UsageError("--model is missing; name a reference network, or package.module:function")
    train = _load(options, "train", options.examples, option="--examples")
    test = _load(options, "test", options.test_examples, option="--test-examples")
    classes, facts = options.classes, info(options.data, bounds=options.bounds, allow_code=True)
    if classes is None and not is_code(options.model):
        classes = facts.num_classes
    model = load_network(
        options.model,
        shape=tuple(train.inputs.shape[1:]),
        classes=classes,
        weights=options.weights,
        normalise=options.normalise,
        seed=None if options.weights is not None or is_code(options.model) else options.seed,
        task=facts.task,
        allow_code=True,
    )
    parts = [_take(train, rows) for rows in _deal(train, options)]
    highest = max(int(train.targets.max()), int(test.targets.max()))
    return TrainSubject(model, _make_clients(parts, options, classes=classes or highest + 1), test, facts.task)


def _load(options: TrainOptions, split: str, count: int | None, *, option: str) -> Batch:
    with name_options("size"):
        try:
            return load(
                options.data,
                split=split,
                count=count,
                seed=options.seed,
                size=options.size,
                bounds=options.bounds,
                allow_code=True,
            )
        except UsageError as error:
            if not str(error).startswith("count "):
                raise
            raise UsageError(f"{option}{str(error).removeprefix('count')}") from error


def _load_plane(options: TrainOptions) -> TrainSubject:
    """The two clients in the plane, and the network of the thesis: 2-8-2 with sigmoids."""
    usual = TrainOptions(PLANE)
    for name in (
        "model",
        "clients",
        "partition",
        "alpha",
        "shards",
        "test_examples",
        "weights",
        "classes",
        "normalise",
    ):
        if vars(options)[name] not in (None, vars(usual)[name], 2 if name == "clients" else None):
            raise UsageError(f"--data {PLANE} brings its own network and two clients, so --{name} has no use; drop it")
    task = two_gaussians(seed=options.seed, **({} if options.examples is None else {"samples": options.examples}))
    with torch.random.fork_rng():
        torch.manual_seed(child_seed(options.seed, "plane"))
        model = nn.Sequential(nn.Linear(2, _HIDDEN), nn.Sigmoid(), nn.Linear(_HIDDEN, 2))
    return TrainSubject(model, _make_clients(list(task.train), options, classes=2), task.test)


def _deal(train: Batch, options: TrainOptions) -> list[torch.Tensor]:
    if options.alpha is not None and options.partition != "dirichlet":
        raise UsageError(f"--alpha has no effect with --partition {options.partition}; drop it, or use dirichlet")
    if options.shards is not None and options.partition != "by-class":
        raise UsageError(f"--shards has no effect with --partition {options.partition}; drop it, or use by-class")
    if options.partition != "iid" and train.targets.ndim > 1:
        raise UsageError(
            f"--partition {options.partition} deals by label, and {options.data!r} has texts instead; use iid"
        )
    return partition(
        train.targets,
        clients=options.clients,
        scheme=options.partition,
        alpha=0.5 if options.alpha is None else options.alpha,
        shards=2 if options.shards is None else options.shards,
        seed=options.seed,
    )


def _take(train: Batch, rows: torch.Tensor) -> Batch:
    return Batch(train.inputs[rows], train.targets[rows], train.bounds)


def _make_clients(parts: list[Batch], options: TrainOptions, *, classes: int) -> tuple[Client, ...]:
    poisoned: dict[int, Poison] = {}
    for spec in options.poison:
        number, poison = poison_from_spec(spec, classes=classes)
        if number >= len(parts) or number in poisoned:
            raise UsageError(f"--poison {spec!r}: clients are 0 to {len(parts) - 1}, and each is poisoned once")
        poisoned[number] = poison
    return tuple(
        Client.of(number, part, held_out=options.held_out, poison=poisoned.get(number))
        for number, part in enumerate(parts)
    )
