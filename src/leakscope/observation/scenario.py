"""The ladder of scenarios: what a server knows, granted explicitly and nowhere else.

A ⊃ B ⊃ C ⊃ D ⊃ E. Model, update and input shape are known in every one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from leakscope.errors import KnowledgeError, UsageError, suggest
from leakscope.types import Knowledge, Observation

_SIZE = frozenset({Knowledge.BATCH_SIZE})
# How a client trained.
RECIPE = frozenset({Knowledge.LEARNING_RATE, Knowledge.LOCAL_STEPS})
TRAINING = _SIZE | RECIPE


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
    """Look a scenario up by its letter."""
    if isinstance(name, Scenario):
        return name
    if name not in SCENARIOS:
        raise UsageError(f"unknown scenario {name!r}.{suggest(name, SCENARIOS)}")
    return SCENARIOS[name]


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
