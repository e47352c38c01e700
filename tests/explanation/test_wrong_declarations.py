"""The table of wrong declarations in little: none of them ends `ok`, and the right ones do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from leakscope.observation.observe import observe
from leakscope.registry import get_attack
from leakscope.types import Batch, LocalTraining, SharedUpdate, Status
from tiny import batch_of, shared

SGD = LocalTraining(0.02, steps=3, batch_size=2)
ADAM = LocalTraining(0.001, steps=3, batch_size=2, optimiser="adam")


def network(*, seed: int = 0, act: Callable[[], nn.Module] = nn.ReLU, dropout: float = 0.5) -> nn.Sequential:
    """A small network; whatever its activation, the shapes are the same."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            *(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.LeakyReLU(0.1), nn.Flatten()),
            *(nn.Linear(72, 64), act(), nn.Dropout(dropout), nn.Linear(64, 8)),
        ).double()


@dataclass(frozen=True)
class Row:
    """What the client did, and what is declared of it; unless said otherwise both are the same."""

    name: str
    did: LocalTraining | None = None
    said: LocalTraining | None = None
    outside: bool = False
    dropped: bool = False
    factor: float = 1.0
    declared: nn.Module | None = None


WRONG = [
    Row("adam", ADAM, replace(ADAM, optimiser="sgd")),
    Row("momentum", replace(SGD, momentum=0.9), SGD),
    Row("rate", SGD, replace(SGD, lr=0.6)),
    Row("steps", replace(SGD, steps=8), SGD),
    Row("decay", replace(SGD, weight_decay=0.5), SGD),
    Row("outside normalisation", outside=True),
    Row("dropout", dropped=True),
    Row("summed", factor=2.0),
    Row("reversed", factor=-1.0),
    Row("other weights", declared=network(seed=1)),
    Row("other architecture", declared=network(act=nn.Tanh)),
]
RIGHT = [
    Row("gradient"),
    Row("sgd", SGD, SGD),
    Row("momentum", replace(SGD, momentum=0.9), replace(SGD, momentum=0.9)),
    Row("decay", replace(SGD, weight_decay=0.5), replace(SGD, weight_decay=0.5)),
]


def status_of(row: Row) -> tuple[Status, tuple[str, ...]]:
    batch = batch_of([1, 2])
    inputs = (batch.inputs - 0.45) / 0.25 if row.outside else batch.inputs
    client = network().train(row.dropped)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        made = shared(client, Batch(inputs, batch.targets, bounds=(-2.0, 2.5)), local=row.did)
    tensors = {name: row.factor * value for name, value in made.tensors.items()}
    update = SharedUpdate(made.kind, tensors, num_examples=2, local=row.said)
    seen = observe((row.declared or network()).eval(), update, scenario="C", truth=batch)
    found = get_attack("inverting-gradients", steps=100).reconstruct(seen)
    return found.status, found.notes


@pytest.mark.parametrize("row", WRONG, ids=lambda row: row.name)
def test_a_wrong_declaration_never_ends_ok(row: Row):
    status, notes = status_of(row)
    assert status is Status.UNEXPLAINED, notes
    assert any(note.startswith("explained ") for note in notes)


@pytest.mark.parametrize("row", RIGHT, ids=lambda row: row.name)
def test_a_right_one_does(row: Row):
    status, notes = status_of(row)
    assert status is Status.OK, notes
