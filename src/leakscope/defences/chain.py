"""Several defences, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from torch import nn

from leakscope.attack import Attack
from leakscope.types import ClientStep, Defence


@dataclass(frozen=True)
class Chain:
    """Applies `parts` in order; an empty chain is no defence."""
    changes_network = False
    strong_attacks = ()

    parts: tuple[Defence, ...]

    @property
    def name(self) -> str:
        """The parts' names joined by "+"."""
        return "+".join(part.name for part in self.parts) or "none"

    @property
    def paper(self) -> str:
        """The parts' papers."""
        return "; ".join(part.paper for part in self.parts)

    def harden(self, model: nn.Module) -> nn.Module:
        """Harden with each part in turn."""
        return reduce(lambda current, part: part.harden(current), self.parts, model)

    def wrap(self, step: ClientStep) -> ClientStep:
        """The first part acts on the update first."""
        return reduce(lambda current, part: part.wrap(current), self.parts, step)

    def adapt(self, attack: Attack) -> Attack:
        """The attacker knows every part."""
        return reduce(lambda current, part: part.adapt(current), self.parts, attack)


def chain(*parts: Defence) -> Chain:
    """`chain(clip(1.0), gaussian_noise(1e-2))` clips, then adds noise."""
    return Chain(tuple(parts))
