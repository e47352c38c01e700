"""GRNN's result, bettered by reading the network backwards through its max pooling; no part of the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

from leakscope.attacks.grnn import PAPER, grnn
from leakscope.errors import UnsuitableError, UsageError
from leakscope.matching.engine import Watch
from leakscope.matching.facts import Fact
from leakscope.matching.pooled import read_pooled
from leakscope.matching.recipe import GradientMatching
from leakscope.types import Knowledge, Observation, Reconstruction, SharedUpdate, Status

# A reading that does not explain the update is tried once more, by the other way.
_GRADIENT_FROM = (0.2, 0.5)


@dataclass(frozen=True)
class RefinedGrnn:
    """The generator first, for labels and a picture; then the network is read backwards through its max pooling.

    The second picture is kept where it explains the update better, by the same distance; else, and where the network
    or the update does not fit, the generator's stays, and a note says why. The reading does not start from the
    generator's picture: what it finds is owed to the layers and to a general notion of smoothness.
    """

    search: GradientMatching
    passes: int = 20
    name: str = "grnn-refined"
    paper: str = PAPER

    def __post_init__(self) -> None:
        if not isinstance(self.passes, int) or self.passes < 1:
            raise UsageError(f"attack {self.name!r} needs a whole number passes ≥ 1, got {self.passes!r}")

    @property
    def needs(self) -> frozenset[Knowledge]:
        """As the search."""
        return self.search.needs

    @property
    def steps(self) -> int:
        """Iterations of the generator."""
        return self.search.steps

    def with_steps(self, steps: int) -> RefinedGrnn:
        """The same attack with another number of iterations of the generator."""
        return replace(self, search=replace(self.search, steps=steps))

    def craft(self, model: nn.Module, history: Sequence[SharedUpdate] = ()) -> nn.Module:
        """Hand out the honest model."""
        return model

    def reconstruct(self, seen: Observation, seed: int = 0, *, watch: Watch | None = None) -> Reconstruction:
        """Train the generator, read the layers, return what explains the update better."""
        found = self.search.reconstruct(seen, seed, watch=watch)
        losses: list[str] = []
        for late in _GRADIENT_FROM:
            try:
                inputs = read_pooled(seen, seed, passes=self.passes, gradient_from=late)
            except UnsuitableError as error:
                return replace(found, notes=(*found.notes, f"not refined: {error}"))
            # The generator's soft label is certain in the end; an exact picture deserves an exact one.
            read = replace(found, inputs=inputs, target_probabilities=None, status=Status.OK)
            loss = self.evaluate(seen, read)
            if math.isfinite(loss) and not loss >= found.loss:
                notes = (*found.notes, "refined: read backwards through the max pooling")
                return replace(read, loss=loss, history=(*found.history, loss), notes=notes)
            losses.append(f"{loss:.3g}")
        notes = (*found.notes, f"not refined: reading through max pooling came to worse matches, {', '.join(losses)}")
        return replace(found, notes=notes)

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """The matching distance at a reconstruction, computed afresh by plain differentiation."""
        return self.search.evaluate(seen, reconstruction)

    def informed(self, fact: Fact) -> RefinedGrnn:
        """The same attack comparing updates as someone who knows of the defence does."""
        return replace(self, search=self.search.informed(fact))


def refined_grnn(*, steps: int = 400, passes: int = 20, num_examples: int | None = None) -> RefinedGrnn:
    """GRNN's generator for `steps` iterations, then `passes` over the first layer's windows; no part of the paper."""
    return RefinedGrnn(grnn(steps=steps, num_examples=num_examples), passes)
