"""The ladder of scenarios: what a server knows, granted explicitly and nowhere else.

A ⊃ B ⊃ C ⊃ D ⊃ E. Model, update and input shape are known in every one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from leakscope.errors import KnowledgeError, UsageError, suggest
from leakscope.networks import batch_statistics, noise_inputs
from leakscope.types import Batch, Knowledge, Observation, SharedUpdate, Tensors

if TYPE_CHECKING:
    from leakscope.local_training import Order

_SIZE = frozenset({Knowledge.BATCH_SIZE})
# How a client trained.
RATE_AND_STEPS = frozenset({Knowledge.LEARNING_RATE, Knowledge.LOCAL_STEPS})
TRAINING = _SIZE | RATE_AND_STEPS


@dataclass(frozen=True)
class Scenario:
    """A named set of granted knowledge, with the sentence a report prints for it."""

    name: str
    grants: frozenset[Knowledge]
    text: str

    @property
    def withholds(self) -> frozenset[Knowledge]:
        """What the server does not know here."""
        return frozenset(Knowledge) - self.grants

    def grant_knowledge(self, update: SharedUpdate) -> frozenset[Knowledge]:
        """What is granted and the update has: a delta may come without word of how it was made."""
        absent = update.kind == "delta" and update.local is None
        return self.grants - RATE_AND_STEPS if absent else self.grants

    def grant_update(self, update: SharedUpdate) -> SharedUpdate:
        """The update without the fields that would tell more than is granted."""
        if self.grants >= TRAINING:
            return update
        size = update.num_examples if Knowledge.BATCH_SIZE in self.grants else None
        return SharedUpdate(update.kind, update.tensors, num_examples=size, local=None, buffers=update.buffers)

    def grant_order(self, order: Sequence[Sequence[int]] | None) -> Order | None:
        """Positions of the examples of every local step."""
        if order is None or Knowledge.LABEL_ORDER not in self.grants:
            return None
        return tuple(tuple(int(place) for place in step) for step in order)

    def grant_targets(self, labels: Tensor | None, *, dtype: torch.dtype) -> Tensor | None:
        """The labels, sorted where their order is not granted; soft ones at least as precise as `dtype`."""
        if labels is None or Knowledge.LABELS not in self.grants:
            return None
        if labels.is_floating_point():
            return labels.to(torch.promote_types(labels.dtype, dtype), copy=True)
        if Knowledge.LABEL_ORDER in self.grants:
            return labels.clone()
        # Without the order only the multiset of labels is known: sorting removes the rest. A text stays whole.
        return labels.sort().values if labels.ndim == 1 else labels.new_tensor(sorted(labels.tolist()))

    def grant_statistics(self, model: nn.Module, truth: Batch | None) -> Tensors | None:
        """What the normalisation layers of `model` see of the private batch."""
        if truth is None or Knowledge.BATCH_STATISTICS not in self.grants:
            return None
        return batch_statistics(model, truth.inputs.to(noise_inputs(model, tuple(truth.inputs.shape[1:]))))


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("A", frozenset(Knowledge), "The server knows everything but the inputs: an upper bound on leakage."),
        Scenario("B", TRAINING | {Knowledge.LABELS}, "The server knows the labels and how the client trained."),
        Scenario("C", TRAINING, "The server knows how the client trained; it must infer the labels."),
        Scenario("D", _SIZE, "The server knows how many examples were used, but not the learning rate or the steps."),
        Scenario("E", frozenset(), "The server knows the model, the update and the input shape, and nothing else."),
    )
}


def get_scenario(name: str | Scenario) -> Scenario:
    """Look a scenario up by its letter, in either case."""
    if isinstance(name, Scenario):
        return name
    if name.upper() not in SCENARIOS:
        raise UsageError(f"unknown scenario {name!r}.{suggest(name, SCENARIOS)}")
    return SCENARIOS[name.upper()]


def check_needs(name: str, needs: Iterable[Knowledge], seen: Observation) -> None:
    """Refuse, before any compute, an attack that needs more than was granted."""
    missing = sorted((frozenset(needs) - seen.knowledge), key=lambda item: item.name)
    if not missing:
        return
    granting = [s.name for s in SCENARIOS.values() if frozenset(needs) <= s.grants]
    if seen.scenario in granting:
        raise KnowledgeError(
            f"attack {name!r} needs {'; '.join(item.value for item in missing)}, which scenario {seen.scenario!r} "
            "grants but the update does not carry; "
            "give it local=LocalTraining(lr, steps, batch_size), or use another attack"
        )
    raise KnowledgeError(
        f"attack {name!r} needs {'; '.join(item.value for item in missing)}, which scenario "
        f"{seen.scenario!r} does not grant; use scenario {' or '.join(granting)}, or another attack"
    )
